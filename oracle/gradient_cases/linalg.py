"""Decompositions, functions of matrices, and Fourier transforms.

Vectors have signs and phases of their own, so that functions of what they make together are differentiated.
"""

from gradients import any_, fixed, positive

import tensorflow as tf

raw = tf.raw_ops


def definite(x):
    """A self-adjoint positive matrix."""
    return tf.matmul(x, x, adjoint_b=True) + 2 * tf.eye(x.shape[-1] or 3, dtype=x.dtype)


def symmetric(x):
    return (x + tf.linalg.adjoint(x)) / 2


def regular(x):
    return x + 4 * tf.eye(3, dtype=x.dtype)


def cases(c):
    both = ("double", "complex128")
    for name, function in {
        "Cholesky": lambda x: tf.linalg.cholesky(definite(x)),
        "MatrixInverse": lambda x: tf.linalg.inv(regular(x)),
        "MatrixInverse_adjoint": lambda x: tf.linalg.inv(regular(x), adjoint=True),
    }.items():
        for shape in [(3, 3), (2, 3, 3)]:
            c.case(f"{name}/{len(shape)}", function, any_(*shape), dtypes=both)
    c.case("MatrixDeterminant", lambda x: tf.linalg.det(regular(x)), any_(2, 3, 3))
    c.case("LogMatrixDeterminant", lambda x: tf.linalg.slogdet(regular(x))[1], any_(2, 3, 3))
    c.case("MatrixSquareRoot", lambda x: tf.linalg.sqrtm(definite(x)), any_(2, 3, 3))
    for adjoint in (False, True):
        c.case(
            f"MatrixSolve/{adjoint}",
            lambda a, b: tf.linalg.solve(regular(a), b, adjoint=adjoint),
            any_(2, 3, 3),
            any_(2, 3, 2),
            dtypes=both,
        )
        for lower in (False, True):
            c.case(
                f"BandedTriangularSolve/{lower}_{adjoint}",
                lambda a, b: tf.linalg.banded_triangular_solve(a, b, lower=lower, adjoint=adjoint),
                positive(2, 4),
                any_(2, 4, 2),
                dtypes=both,
            )
    for shape in [(4, 2), (2, 4)]:
        c.case(
            f"MatrixSolveLs/{shape[0]}x{shape[1]}",
            lambda a, b: tf.linalg.lstsq(a, b, l2_regularizer=0.3),
            any_(*shape),
            any_(shape[0], 2),
            unknown=False,
        )
    c.case("SelfAdjointEigV2/values", lambda x: tf.linalg.eigvalsh(symmetric(x)), any_(2, 3, 3))
    c.case("SelfAdjointEigV2", lambda x: absolute(tf.linalg.eigh(symmetric(x))), any_(3, 3), dtypes=both)
    c.case("Eig", eig, fixed([[3.0, 0.5, 0.2], [0.1, 1.0, 0.4], [0.3, 0.2, -2.0]]))
    for full in (False, True):
        for shape in [(3, 3), (3, 2), (2, 3)]:
            c.case(
                f"Svd/{shape[0]}x{shape[1]}_{full}",
                lambda x: absolute(tf.linalg.svd(x, full_matrices=full)),
                any_(*shape),
                unknown=False,
            )
    c.case("Svd/complex", lambda x: absolute(tf.linalg.svd(x)), any_(4, 2), dtypes=("complex128",), unknown=False)
    c.case("Svd/values", lambda x: tf.linalg.svd(x, compute_uv=False), any_(2, 3, 2))
    c.case(
        "TridiagonalMatMul",
        lambda *x: raw.TridiagonalMatMul(superdiag=x[0], maindiag=x[1], subdiag=x[2], rhs=x[3]),
        any_(2, 1, 4),
        any_(2, 1, 4),
        any_(2, 1, 4),
        any_(2, 4, 3),
        dtypes=both,
    )
    c.case(
        "TridiagonalSolve",
        lambda d, b: raw.TridiagonalSolve(diagonals=d + tf.constant([[0.0], [5.0], [0.0]], d.dtype), rhs=b),
        any_(2, 3, 4),
        any_(2, 4, 2),
    )
    for rank in (1, 2, 3):
        suffix = "" if rank == 1 else f"{rank}D"
        shape = (2, 4, 3, 5)[-rank - 1 :]
        for op in ("FFT", "IFFT"):
            function = getattr(raw, op + suffix)
            c.case(op + suffix, lambda x: function(input=x), any_(*shape), dtypes=("complex64", "complex128"))
        if rank == 3:
            continue
        for last in (5, 6):
            lengths = [4, last][-rank:]
            forward, backward = getattr(raw, "RFFT" + suffix), getattr(raw, "IRFFT" + suffix)
            c.case(
                f"RFFT{suffix}/{last}",
                lambda x: forward(input=x, fft_length=lengths, Tcomplex=wide(x)),
                any_(2, *lengths),
            )
            half = (2, *lengths[:-1], last // 2 + 1)
            c.case(
                f"IRFFT{suffix}/{last}",
                lambda x: backward(input=x, fft_length=lengths, Treal=x.dtype.real_dtype),
                any_(*half),
                dtypes=("complex64", "complex128"),
            )


def wide(x):
    return tf.complex64 if x.dtype == tf.float32 else tf.complex128


def absolute(parts):
    """Values, and vectors without their signs and phases."""
    values, *vectors = parts
    return [values] + [tf.abs(v) if not v.dtype.is_complex else tf.math.real(v * tf.math.conj(v)) for v in vectors]


def eig(x):
    e, v = tf.linalg.eig(x)
    return [tf.math.real(e), tf.abs(v)]
