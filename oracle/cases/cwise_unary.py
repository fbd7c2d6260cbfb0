"""Element-wise functions of one tensor."""

from values import *

EXACT = ["Abs", "Neg", "Sign", "Floor", "Ceil", "Rint", "Round", "Square", "IsNan", "IsInf", "IsFinite", "Invert"]
ROUNDED = [
    "Sqrt",
    "Rsqrt",
    "Reciprocal",
    "Inv",
    "Exp",
    "Expm1",
    "Log",
    "Log1p",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
]
ROUNDED += [
    "Sinh",
    "Cosh",
    "Tanh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Sigmoid",
    "Erf",
    "Erfc",
    "Erfinv",
    "Ndtri",
    "Lgamma",
    "Digamma",
]
# Outside of their domain these are fed positive values or fractions.
DOMAIN = {
    "Sqrt": pos,
    "Rsqrt": pos,
    "Log": pos,
    "Log1p": pos,
    "Lgamma": pos,
    "Digamma": pos,
    "Asin": unit,
    "Acos": unit,
}
DOMAIN |= {"Atanh": unit, "Erfinv": unit}


def cases(c):
    for op in EXACT + ROUNDED:
        # Complex numbers are divided by their size in one way or another, depending on where they lie in a register.
        accuracy = "exact" if op in EXACT and op != "Sign" else "rounding"
        inputs = DOMAIN.get(op, arr)
        c.op(op, [inputs(2, 3)], "matrix", accuracy=accuracy)
        c.op(op, [inputs()], "scalar", accuracy=accuracy, few=True)
        c.op(op, [inputs(1, 2, 1, 2, 1)], "rank_5", accuracy=accuracy, few=True)
        c.op(op, [empty(2, 0)], "empty", accuracy=accuracy, few=True)
        # Complex functions at infinities follow the C library of the day; only finite points are compared.
        c.op(op, [specials()], "specials", accuracy=accuracy, types=REAL)
        # An odd length leaves a tail after the vectorized part.
        c.op(op, [big(19)], "wide", accuracy=accuracy, types=FLOATS)
    c.op("Acosh", [lit([1.0, 1.5, 2.0, 100.0, 0.5])], "domain", accuracy="rounding")
    c.op(
        "Erfinv",
        [lit([-3.4640512679939375e-11, 1e-14, 1e-9, -1e-5, 1e-3, 0.3, 0.5, 0.51])],
        "small",
        accuracy="rounding",
    )
    c.op("Ndtri", [lit([0.0, 0.1, 0.5, 0.9, 1.0, -0.5])], "domain", accuracy="rounding")
    c.op("Round", [lit([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 1e10])], "ties", types=FLOATS)
    c.op("Rint", [lit([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 1e10])], "ties", types=FLOATS)
    c.op("LogicalNot", [[True, False]])
    c.op("LogicalNot", [np.zeros((0, 2), np.bool_)], "empty")
    c.op("LogicalNot", [True], "scalar")
    cuts = lit(
        [complex(x, y) for x in (-2.0, -0.5, -0.0, 0.0, 0.5, 2.0, 70.0) for y in (-60.0, -1.5, -0.0, 0.0, 1.5, 60.0)]
    )
    for op in ("Asin", "Acos", "Asinh", "Acosh", "Atan", "Atanh", "Tan", "Tanh", "Sigmoid"):
        c.op(op, [cuts], "cuts", types=COMPLEX, accuracy="rounding")
    for number, edge in (("complex64", 89.5), ("complex128", 710.5)):
        angles = (0.0, -1e-3, 1.5707, 3.0)
        beyond = [
            z
            for far in (edge, -edge, 1.9 * edge, 3 * edge)
            for angle in angles
            for z in (complex(far, angle), complex(angle, far))
        ]
        for op in ("Sin", "Cos", "Sinh", "Cosh"):
            c.op(op, [lit(beyond)], "beyond", T=number, accuracy="rounding")
    far = lit(
        [
            complex(x, y)
            for x in (-np.inf, -1.7e308, -0.5, 0.0, 1e200, np.inf, np.nan)
            for y in (-np.inf, -1.7e308, 0.0, 1.5, 1e200, np.nan)
        ]
    )
    for op in ("Asin", "Acos", "Asinh", "Acosh"):
        c.op(op, [far], "far", T="complex128", accuracy="rounding")
