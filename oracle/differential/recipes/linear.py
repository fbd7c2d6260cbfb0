"""Recipes for products and equations of matrices."""

from recipes import Like, recipe

_EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "ij,ij->", "ij->ji", "ij->", "ij->i", "ii->i", "ii->", "i,j->ij", "bij,bjk->bik", "bij,jk->bik", "...ij,...jk->...ik", "...ij,jk->...ik",
    "bij,bij->b", "bij->bji", "...i,...i->...", "i...->...i", "bhqd,bhkd->bhqk", "ij,j->i", "abc,cd->abd", "abc,ad->bcd", "ab,ab->ba", "iij->j", "i,i->i",
)  # fmt: skip


@recipe("Einsum")
def _einsum(s, a):
    equation = s.pick([e for e in _EQUATIONS if len(e.split("->")[0].split(",")) == (2 if s.chance(0.7) else 1)])
    a["equation"] = equation.encode()
    sizes = {letter: s.small(1, 5) for letter in equation if letter.isalpha()}
    outer = s.shape()[:2]
    terms = equation.split("->")[0].split(",")
    a["N"] = len(terms)
    shapes = []
    for term in terms:
        before, dots, after = term.partition("...")
        middle = s.thinned(outer) if dots else ()
        shapes.append((*(sizes[c] for c in before), *middle, *(sizes[c] for c in after)))
    return [Like(shape) for shape in shapes]


@recipe("MatMul", "SparseMatMul")
def _mat_mul(s, a):
    rows, inner, columns = _sizes(s)
    turned = [a.get(name, False) for name in ("transpose_a", "transpose_b")]
    return [
        Like((inner, rows) if turned[0] else (rows, inner)),
        Like((columns, inner) if turned[1] else (inner, columns)),
    ]


@recipe("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def _batch_mat_mul(s, a):
    rows, inner, columns = _sizes(s)
    turned = [a.get(name, False) for name in ("adj_x", "adj_y")]
    outer = s.shape()[:2]
    left, right = (outer, outer) if s.op == "BatchMatMul" else (s.thinned(outer), s.thinned(outer))
    return [
        Like((*left, *((inner, rows) if turned[0] else (rows, inner)))),
        Like((*right, *((columns, inner) if turned[1] else (inner, columns)))),
    ]


def _sizes(s):
    return [s.pick([1, 2, 3, 5, 8, 17, s.small(0, 40)]) for _ in range(3)]


@recipe("MatrixTriangularSolve", "BatchMatrixTriangularSolve")
def _triangular_solve(s, a):
    order, columns, outer = s.small(1, 9), s.small(1, 5), s.shape()[:1]
    left, right = (outer, outer) if s.op.startswith("Batch") else (s.thinned(outer), s.thinned(outer))
    return [Like((*left, order, order)), Like((*right, order, columns))]


@recipe("BiasAdd", "BiasAddV1", "BiasAddGrad")
def _bias(s, a):
    shape = s.shape(2)
    channels = shape[1] if a.get("data_format") == b"NCHW" else shape[-1]
    return [Like(shape), Like((channels,))][: 1 if s.op == "BiasAddGrad" else 2]
