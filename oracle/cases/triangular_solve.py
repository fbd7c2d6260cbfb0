"""Linear equations with triangular matrices."""

from values import *


def cases(c):
    c.accuracy("rounding")
    for lower in (True, False):
        for adjoint in (True, False):
            name = ("lower" if lower else "upper") + ("_adjoint" if adjoint else "")
            attrs = {"lower": lower, "adjoint": adjoint}
            for matrix, rhs in [
                ((3, 3), (3, 2)),
                ((1, 1), (1, 1)),
                ((4, 4), (4, 1)),
                ((2, 3, 3), (2, 3, 4)),
                ((9, 9), (9, 5)),
            ]:
                shape = "x".join(map(str, matrix))
                c.op("MatrixTriangularSolve", [pos(*matrix), arr(*rhs, seed=1)], f"{name}_{shape}", **attrs)
            c.op(
                "MatrixTriangularSolve", [pos(2, 1, 2, 2), arr(3, 2, 2, seed=1)], name + "_broadcast", few=True, **attrs
            )
            c.op("MatrixTriangularSolve", [pos(2, 2), arr(3, 2, 1, seed=1)], name + "_one_matrix", few=True, **attrs)
            c.op("BatchMatrixTriangularSolve", [pos(2, 2, 2), arr(2, 2, 2, seed=1)], name, producer=12, **attrs)
            singular = lit([[1.0, 2.0, 3.0], [4.0, 0.0, 5.0], [6.0, 7.0, 8.0]])
            for columns in (1, 2):
                rhs = lit([[1.0, 0.0][:columns], [0.0, 2.0][:columns], [0.0, 0.0][:columns]])
                c.op(
                    "MatrixTriangularSolve",
                    [singular, rhs],
                    f"{name}_singular_{columns}",
                    types=("float", "double"),
                    **attrs,
                )
    zeros = lit([[0.0, 0.0], [0.0, 0.0]])
    c.op("MatrixTriangularSolve", [zeros, zeros], "zeros", types=("float", "double", "complex64"))
    for adjoint in (True, False):
        infinite = lit([[3 - 4j, 0, 0], [1000, complex(float("inf"), 0), 0], [1j, 2, complex(0, float("-inf"))]])
        c.op(
            "MatrixTriangularSolve",
            [infinite, arr(3, 2)],
            f"infinite_{adjoint}",
            types=("complex64", "complex128"),
            adjoint=adjoint,
        )
    c.op("MatrixTriangularSolve", [empty(0, 0), empty(0, 2)], "order_0", few=True)
    c.op("MatrixTriangularSolve", [pos(2, 2), empty(2, 0)], "no_columns", few=True)
    c.op("MatrixTriangularSolve", [empty(0, 2, 2), empty(0, 2, 1)], "no_matrices", few=True)
    c.op("MatrixTriangularSolve", [pos(2, 3), arr(3, 1)], "not_square", few=True)
    c.op("MatrixTriangularSolve", [pos(2, 2), arr(3, 1)], "other_rows", few=True)
    c.op("MatrixTriangularSolve", [pos(2, 2), arr(2)], "vector", few=True)
    c.op("MatrixTriangularSolve", [pos(2), arr(2, 2)], "no_matrix", few=True)
    c.op("MatrixTriangularSolve", [pos(2, 2, 2), arr(3, 2, 2)], "other_batch", few=True)
