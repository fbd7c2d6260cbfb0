"""Arithmetic, functions, reductions, segments and products."""

from gradients import above_one, any_, fixed, positive, probability, unit

import tensorflow as tf

raw = tf.raw_ops

ANY = {
    "Abs": tf.abs,
    "Neg": tf.negative,
    "Sign": tf.sign,
    "Square": tf.square,
    "Exp": tf.exp,
    "Expm1": tf.math.expm1,
    "Sin": tf.sin,
    "Cos": tf.cos,
    "Atan": tf.atan,
    "Sinh": tf.sinh,
    "Cosh": tf.cosh,
    "Tanh": tf.tanh,
    "Asinh": tf.asinh,
    "Sigmoid": tf.sigmoid,
    "Erf": tf.math.erf,
    "Erfc": tf.math.erfc,
    "Dawsn": tf.math.special.dawsn,
    "FresnelCos": tf.math.special.fresnel_cos,
    "FresnelSin": tf.math.special.fresnel_sin,
    "BesselI0": tf.math.special.bessel_i0,
    "BesselI0e": tf.math.special.bessel_i0e,
    "BesselI1": tf.math.special.bessel_i1,
    "BesselI1e": tf.math.special.bessel_i1e,
    "BesselJ0": tf.math.special.bessel_j0,
    "BesselJ1": tf.math.special.bessel_j1,
}
POSITIVE = {
    "Inv": lambda x: raw.Inv(x=x),
    "Reciprocal": tf.math.reciprocal,
    "Sqrt": tf.sqrt,
    "Rsqrt": tf.math.rsqrt,
    "Log": tf.math.log,
    "Log1p": tf.math.log1p,
    "Lgamma": tf.math.lgamma,
    "Digamma": tf.math.digamma,
    "Expint": tf.math.special.expint,
    "Spence": tf.math.special.spence,
    "BesselK0": tf.math.special.bessel_k0,
    "BesselK0e": tf.math.special.bessel_k0e,
    "BesselK1": tf.math.special.bessel_k1,
    "BesselK1e": tf.math.special.bessel_k1e,
    "BesselY0": tf.math.special.bessel_y0,
    "BesselY1": tf.math.special.bessel_y1,
}
UNIT = {"Tan": tf.tan, "Asin": tf.asin, "Acos": tf.acos, "Atanh": tf.atanh, "Erfinv": tf.math.erfinv}
COMPLEX = (
    "Neg Square Exp Sin Cos Sinh Cosh Tanh Sigmoid Sqrt Rsqrt Log Log1p Reciprocal Expm1 Tan Asin Atan Asinh".split()
)


def cases(c):
    unary(c)
    second(c)
    binary(c)
    complex_numbers(c)
    reductions(c)
    choices(c)
    cumulative(c)
    products(c)
    factors(c)
    segments(c)
    sparse_segments(c)


def unary(c):
    for functions, values in ((ANY, any_), (POSITIVE, positive), (UNIT, unit)):
        for name, function in functions.items():
            c.case(name, function, values(2, 3))
    c.case("Acosh", tf.acosh, above_one(4))
    c.case("Ndtri", tf.math.ndtri, probability(4))
    c.case("Spence/at_one", tf.math.special.spence, fixed([1.0, 0.5]))
    for name in ("BesselI1", "BesselI1e", "BesselJ1"):
        c.case(f"{name}/at_zero", ANY[name], fixed([0.0, 1.5]), unsmooth=True)
    for name in ("Floor", "Ceil", "Rint", "Round"):
        c.case(name, lambda x, op=getattr(raw, name): op(x=x), any_(3), dtypes=("float",))
    for name in ("Tanh", "Exp", "Sqrt", "Log", "Sigmoid", "Erf"):
        function = (ANY | POSITIVE)[name]
        c.case(f"{name}/halves", function, positive(2, 3), dtypes=("half", "bfloat16"), unknown=False)
        c.case(f"{name}/empty", function, positive(0, 3), unknown=False)
        c.case(f"{name}/scalar", function, positive(), unknown=False)
    for name in COMPLEX:
        function = (ANY | POSITIVE | UNIT)[name]
        c.case(f"{name}/complex", function, unit(3), dtypes=("complex64", "complex128"), unknown=False)


def second(c):
    for name in ("SigmoidGrad", "TanhGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"):
        function = lambda y, dy, op=getattr(raw, name): op(y=y, dy=dy)
        c.case(name, function, positive(2, 3), any_(2, 3))
        c.case(f"{name}/complex", function, positive(3), any_(3), dtypes=("complex64",), unknown=False)
    c.case("gradient_of_gradient", lambda x: tf.gradients(tf.tanh(x) * tf.exp(x), x)[0], any_(3))


def binary(c):
    shapes = {
        "same": ((2, 3), (2, 3)),
        "left": ((3,), (2, 3)),
        "right": ((2, 3), (2, 1)),
        "both": ((2, 1, 3), (4, 1)),
        "scalar": ((2, 3), ()),
        "ones": ((3,), (1, 1, 3)),
        "empty": ((0, 3), (1, 3)),
    }
    functions = {
        "AddV2": (lambda x, y: raw.AddV2(x=x, y=y), any_, any_),
        "Add": (lambda x, y: raw.Add(x=x, y=y), any_, any_),
        "Sub": (tf.subtract, any_, any_),
        "Mul": (tf.multiply, any_, any_),
        "MulNoNan": (tf.math.multiply_no_nan, any_, any_),
        "Div": (lambda x, y: raw.Div(x=x, y=y), any_, positive),
        "RealDiv": (tf.realdiv, any_, positive),
        "DivNoNan": (tf.math.divide_no_nan, any_, positive),
        "FloorMod": (tf.math.floormod, any_, above_one),
        "Maximum": (tf.maximum, any_, any_),
        "Minimum": (tf.minimum, any_, any_),
        "SquaredDifference": (tf.math.squared_difference, any_, any_),
        "Pow": (tf.pow, positive, any_),
        "Atan2": (tf.atan2, positive, any_),
        "Xdivy": (tf.math.xdivy, any_, positive),
        "Xlogy": (tf.math.xlogy, any_, positive),
        "Xlog1py": (tf.math.xlog1py, any_, positive),
        "Igamma": (tf.math.igamma, positive, positive),
        "Igammac": (tf.math.igammac, positive, positive),
    }
    for name, (function, left, right) in functions.items():
        for label, (x, y) in shapes.items():
            if label in ("same", "right") or name in ("AddV2", "Mul", "RealDiv", "Maximum", "Pow"):
                c.case(f"{name}/{label}", function, left(*x), right(*y))
    c.case("NextAfter", tf.math.nextafter, any_(2, 3), any_(3), unsmooth=True)
    c.case("FloorDiv", tf.math.floordiv, any_(3), positive(3), dtypes=("float",))
    c.case("TruncateDiv", lambda x, y: raw.TruncateDiv(x=x, y=y), any_(3), positive(3), dtypes=("float",))
    c.case("Pow/zeros", tf.pow, fixed([0.0, 0.0, -1.5, 2.0]), fixed([1.0, 2.0, 2.0, -1.0]), unsmooth=True)
    c.case("Maximum/equal", tf.maximum, fixed([1.0, 2.0]), fixed([1.0, 1.0]), unsmooth=True)
    c.case("Minimum/equal", tf.minimum, fixed([1.0, 2.0]), fixed([1.0, 1.0]), unsmooth=True)
    c.case("Xlogy/zeros", tf.math.xlogy, fixed([0.0, 1.0]), fixed([0.0, 2.0]), unsmooth=True)
    c.case("DivNoNan/zeros", tf.math.divide_no_nan, fixed([1.0, 1.0]), fixed([0.0, 2.0]), unsmooth=True)
    # Stock differentiates these by one input only, which the other is therefore given as a constant.
    c.case("Zeta", lambda q: tf.math.zeta(tf.constant([[2.5], [3.0]], q.dtype), q), above_one(3))
    c.case("Polygamma", lambda x: tf.math.polygamma(tf.constant([[1.0], [2.0]], x.dtype), x), positive(3))
    c.case(
        "Betainc",
        lambda x: tf.math.betainc(tf.constant([1.5, 2.0], x.dtype), tf.constant([0.7, 3.0], x.dtype), x),
        probability(2),
    )
    c.case(
        "Betainc/scalar",
        lambda x: tf.math.betainc(tf.constant([1.5, 2.0], x.dtype), tf.constant([0.7, 3.0], x.dtype), x),
        probability(),
    )
    for name in ("Mul", "RealDiv", "Pow", "AddV2"):
        function = functions[name][0]
        c.case(
            f"{name}/complex", function, positive(2, 3), positive(3), dtypes=("complex64", "complex128"), unknown=False
        )
        c.case(f"{name}/halves", function, positive(2, 3), positive(2, 3), dtypes=("half", "bfloat16"), unknown=False)
    c.case("AddN", lambda x, y: tf.add_n([x, y, x]), any_(2, 3), any_(2, 3))
    c.case("AccumulateNV2", lambda x, y: raw.AccumulateNV2(inputs=[x, y], shape=[2, 3]), any_(2, 3), any_(2, 3))


def complex_numbers(c):
    both = ("complex64", "complex128")
    c.case("Complex", tf.complex, any_(2, 3), any_(3), unsmooth=True)
    for name, function in (
        ("Real", tf.math.real),
        ("Imag", tf.math.imag),
        ("Angle", tf.math.angle),
        ("ComplexAbs", tf.abs),
        ("Conj", tf.math.conj),
    ):
        c.case(name, function, any_(2, 3), dtypes=both, unknown=False)
    c.case(
        "Cast", lambda x: tf.cast(tf.cast(x, tf.float64) * 2, tf.float32), any_(3), dtypes=("float", "half", "bfloat16")
    )
    c.case("Cast/complex", lambda x: tf.cast(x, tf.complex64), any_(3), dtypes=("float",))
    c.case("Cast/integer", lambda x: tf.cast(tf.cast(x, tf.int32), tf.float32), any_(3), dtypes=("float",))


def reductions(c):
    functions = {
        "Sum": tf.reduce_sum,
        "Mean": tf.reduce_mean,
        "Prod": tf.reduce_prod,
        "Max": tf.reduce_max,
        "Min": tf.reduce_min,
        "EuclideanNorm": tf.math.reduce_euclidean_norm,
    }
    for name, function in functions.items():
        for label, axis in (("all", None), ("one", 1), ("two", [0, -1]), ("none", [])):
            c.case(f"{name}/{label}", lambda x, f=function, a=axis: f(x, a), any_(2, 3, 2))
        c.case(f"{name}/kept", lambda x, f=function: f(x, [0, 2], keepdims=True), any_(2, 3, 2))
        if name not in ("Max", "Min", "EuclideanNorm"):
            c.case(f"{name}/complex", lambda x, f=function: f(x, 1), any_(2, 3), dtypes=("complex64",), unknown=False)
        c.case(
            f"{name}/halves", lambda x, f=function: f(x, 1), positive(2, 3), dtypes=("half", "bfloat16"), unknown=False
        )
    c.case("Prod/zeros", lambda x: tf.reduce_prod(x, 1), fixed([[0.0, 2.0, 3.0], [0.0, 0.0, 1.0], [1.0, 2.0, 3.0]]))
    c.case("Max/ties", lambda x: tf.reduce_max(x, 1), fixed([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]]), unsmooth=True)
    c.case("Sum/empty", lambda x: tf.reduce_sum(x, 0), any_(0, 3))
    c.case("Mean/empty", lambda x: tf.reduce_mean(x, 1), any_(2, 0))
    c.case("ArgMax", lambda x: tf.cast(tf.argmax(x, 1), tf.float32), any_(2, 3), dtypes=("float",))


def choices(c):
    c.case("Select", lambda x, y: raw.Select(condition=x > y, x=x, y=y * y), any_(2, 3), any_(2, 3))
    c.case("Select/rows", lambda x, y: raw.Select(condition=[True, False], x=x, y=y), any_(2, 3), any_(2, 3))
    c.case("SelectV2", lambda x, y: raw.SelectV2(condition=[[True], [False]], t=x, e=y), any_(3), any_(2, 1))
    c.case("SelectV2/scalar", lambda x, y: raw.SelectV2(condition=[True, False, True], t=x, e=y), any_(), any_(2, 3))
    c.case(
        "ClipByValue",
        lambda x, low: raw.ClipByValue(t=x, clip_value_min=low, clip_value_max=low + 1),
        any_(2, 3),
        unit(),
    )
    c.case(
        "ClipByValue/rows",
        lambda x, low: raw.ClipByValue(t=x, clip_value_min=low, clip_value_max=low + 1),
        any_(2, 3),
        unit(2, 3),
    )
    c.case("Cross", tf.linalg.cross, any_(2, 3), any_(2, 3))


def cumulative(c):
    for exclusive in (False, True):
        for reverse in (False, True):
            label = f"{'exclusive' if exclusive else 'inclusive'}_{'reverse' if reverse else 'forward'}"
            options = {"exclusive": exclusive, "reverse": reverse}
            c.case(f"Cumsum/{label}", lambda x, o=options: tf.cumsum(x, 1, **o), any_(2, 3))
            c.case(f"Cumprod/{label}", lambda x, o=options: tf.math.cumprod(x, 1, **o), positive(2, 3))
            c.case(
                f"CumulativeLogsumexp/{label}",
                lambda x, o=options: tf.math.cumulative_logsumexp(x, 1, **o),
                any_(2, 3),
                unsmooth=exclusive,
            )


def products(c):
    for ta in (False, True):
        for tb in (False, True):
            label = f"{'t' if ta else 'n'}{'t' if tb else 'n'}"
            a, b = (3, 2) if ta else (2, 3), (4, 3) if tb else (3, 4)
            c.case(
                f"MatMul/{label}",
                lambda x, y, ta=ta, tb=tb: raw.MatMul(a=x, b=y, transpose_a=ta, transpose_b=tb),
                any_(*a),
                any_(*b),
            )
            sparse = lambda x, y, ta=ta, tb=tb: raw.SparseMatMul(
                a=x, b=y, transpose_a=ta, transpose_b=tb, a_is_sparse=ta
            )
            c.case(f"SparseMatMul/{label}", sparse, any_(*a), any_(*b), dtypes=("float", "bfloat16"))
            batch = lambda x, y, ta=ta, tb=tb: raw.BatchMatMulV2(x=x, y=y, adj_x=ta, adj_y=tb)
            c.case(f"BatchMatMulV2/{label}", batch, any_(2, *a), any_(2, *b))
            c.case(f"BatchMatMulV2/{label}/broadcast", batch, any_(2, 1, *a), any_(3, *b))
            c.case(f"BatchMatMulV2/{label}/complex", batch, any_(*a), any_(2, *b), dtypes=("complex64",), unknown=False)
            strict = lambda x, y, ta=ta, tb=tb: raw.BatchMatMul(x=x, y=y, adj_x=ta, adj_y=tb)
            c.case(f"BatchMatMul/{label}", strict, any_(2, *a), any_(2, *b))
    mixed = lambda x, y: raw.BatchMatMulV3(x=x, y=y, Tout=x.dtype)
    c.case("BatchMatMulV3", mixed, any_(2, 2, 3), any_(3, 2))
    c.case(
        "MatMul/complex",
        lambda x, y: tf.matmul(x, y, adjoint_a=True),
        any_(3, 2),
        any_(3, 2),
        dtypes=("complex64", "complex128"),
        unknown=False,
    )
    for equation, shapes in {
        "ij,jk->ik": ((2, 3), (3, 4)),
        "ij,jk->ki": ((2, 3), (3, 4)),
        "abc,cd->ad": ((2, 3, 4), (4, 2)),
        "...ij,jk->...ik": ((2, 2, 3), (3, 2)),
        "...ij,...jk->...ik": ((2, 1, 2, 3), (4, 3, 2)),
        "ab...,b->a...": ((2, 3, 2), (3,)),
        "ij->ji": ((2, 3),),
        "ijk->ik": ((2, 3, 2),),
        "ijk->ki": ((2, 3, 2),),
        "ii->i": ((3, 3),),
        "ii->": ((3, 3),),
        "...ij->...": ((2, 2, 3),),
        "i,j->ij": ((2,), (3,)),
        "i,i->": ((3,), (3,)),
    }.items():
        function = lambda *x, e=equation: raw.Einsum(inputs=list(x), equation=e)
        c.case(f"Einsum/{equation}", function, *(any_(*shape) for shape in shapes))
    c.case(
        "Einsum/complex",
        lambda x, y: raw.Einsum(inputs=[x, y], equation="ij,jk->ik"),
        any_(2, 3),
        any_(3, 2),
        dtypes=("complex64",),
        unknown=False,
    )


def segments(c):
    ids = [0, 0, 2, 2]
    for name in ("Sum", "Mean", "Min", "Max", "Prod"):
        function = lambda x, op=getattr(raw, f"Segment{name}"): op(data=x, segment_ids=ids)
        c.case(f"Segment{name}", function, any_(4, 2))
        c.case(f"Segment{name}/vector", function, any_(4))
        if name != "Mean":
            unsorted = lambda x, op=getattr(raw, f"UnsortedSegment{name}"): op(
                data=x, segment_ids=[2, -1, 0, 2], num_segments=4
            )
            c.case(f"UnsortedSegment{name}", unsorted, any_(4, 2))
            matrix = lambda x, op=getattr(raw, f"UnsortedSegment{name}"): op(
                data=x, segment_ids=[[1, 0], [1, 1]], num_segments=2
            )
            c.case(f"UnsortedSegment{name}/matrix", matrix, any_(2, 2, 2))
    zeros = fixed([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    c.case("SegmentProd/zeros", lambda x: raw.SegmentProd(data=x, segment_ids=[0, 0, 1, 1]), zeros)
    c.case(
        "UnsortedSegmentProd/zeros",
        lambda x: raw.UnsortedSegmentProd(data=x, segment_ids=[0, 0, 1, -1], num_segments=2),
        zeros,
        unsmooth=True,
    )
    ties = fixed([[1.0], [1.0], [0.0], [1.0]])
    c.case("SegmentMax/ties", lambda x: raw.SegmentMax(data=x, segment_ids=[0, 0, 0, 1]), ties, unsmooth=True)
    c.case(
        "UnsortedSegmentMax/ties",
        lambda x: raw.UnsortedSegmentMax(data=x, segment_ids=[0, 0, -1, 0], num_segments=2),
        ties,
        unsmooth=True,
    )


def sparse_segments(c):
    rows = {"indices": [3, 0, 0, 1], "segment_ids": [0, 0, 1, 3]}
    for name in ("Sum", "Mean", "SqrtN"):
        for sparse in (False, True):
            label = "rows" if sparse else "whole"
            plain = lambda x, op=getattr(raw, f"SparseSegment{name}"), sparse=sparse: op(
                data=x, sparse_gradient=sparse, **rows
            )
            c.case(f"SparseSegment{name}/{label}", plain, any_(4, 2))
            counted = lambda x, op=getattr(raw, f"SparseSegment{name}WithNumSegments"), sparse=sparse: op(
                data=x, num_segments=5, sparse_gradient=sparse, **rows
            )
            c.case(f"SparseSegment{name}WithNumSegments/{label}", counted, any_(4, 2))


def factors(c):
    for lower in (True, False):
        for adjoint in (True, False):
            label = ("lower" if lower else "upper") + ("_adjoint" if adjoint else "")
            solve = lambda a, b, lower=lower, adjoint=adjoint: raw.MatrixTriangularSolve(
                matrix=a, rhs=b, lower=lower, adjoint=adjoint
            )
            c.case(
                f"MatrixTriangularSolve/{label}", solve, positive(2, 3, 3), any_(2, 3, 2), dtypes=("float", "double")
            )
            c.case(
                f"MatrixTriangularSolve/{label}/broadcast",
                solve,
                positive(2, 1, 2, 2),
                any_(3, 2, 2),
                dtypes=("double",),
            )
            c.case(
                f"MatrixTriangularSolve/{label}/complex",
                solve,
                positive(2, 2),
                any_(2, 2),
                dtypes=("complex64", "complex128"),
                unknown=False,
            )
    for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2), (2, 2, 3)):
        label = "x".join(map(str, shape))
        c.case(f"Qr/{label}", lambda x: list(raw.Qr(input=x)), any_(*shape), dtypes=("double",), unknown=False)
        c.case(
            f"Qr/{label}/complex", lambda x: list(raw.Qr(input=x)), any_(*shape), dtypes=("complex128",), unknown=False
        )
    for shape in ((3, 3), (2, 4)):
        c.case(
            f"Qr/{'x'.join(map(str, shape))}/full",
            lambda x: list(raw.Qr(input=x, full_matrices=True)),
            any_(*shape),
            dtypes=("double",),
            unknown=False,
        )
    c.case("Qr/q_alone", lambda x: raw.Qr(input=x).q, any_(3, 2), dtypes=("double",), unknown=False)
