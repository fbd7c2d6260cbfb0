"""Element-wise functions of 16-bit floats, to the last bit: stock rounds after every step, so the order of steps shows."""

from values import *

# Lengths are multiples of a vector's: what is left after the last whole vector stock computes by other steps, of which
# some (`Rsqrt`, `SigmoidGrad`, `SqrtGrad`) round differently. Ours are the steps of vectors everywhere, so that a result
# does not depend on where it lies.
#
# `Reciprocal`, `Inv` and `Rsqrt` are refined by stock from the processor's estimate, which vendors make differently, to
# within two units of the last place of 24 bits. That never shows in the 8 bits of these numbers: 1/x is at least 2^-16
# away from the middle between two of them, 1/sqrt(x) at least 2^-18. It shows where a reciprocal is smaller than 2^-111:
# the correction is then too small for a number, counts as zero, and the estimate of 12 bits is what is rounded. No case
# may have such an input.
BFLOAT16 = "Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Erfc".split()
BFLOAT16 += "Relu Relu6 Elu Selu LeakyRelu".split()
BFLOAT16_PAIRS = "AddV2 Sub Mul Maximum Minimum SquaredDifference RealDiv FloorDiv FloorMod DivNoNan MulNoNan Xdivy Atan2 Pow".split()
BFLOAT16_PAIRS += "TanhGrad SigmoidGrad RsqrtGrad ReciprocalGrad ReluGrad Relu6Grad EluGrad SeluGrad SoftplusGrad SoftsignGrad LeakyReluGrad".split()
BOTH = ["Sigmoid", "Softplus", "Softsign"]
BOTH_PAIRS = ["Xlogy", "Xlog1py", "SqrtGrad"]
POSITIVE = {"Sqrt", "Rsqrt", "Log", "Log1p", "Acosh", "Pow", "Xlogy", "Xlog1py"}


def numbers(count, seed, positive):
    """Numbers around one, where rounding shows, of 16 bits each."""
    drawn = np.random.RandomState(seed).uniform(0.02 if positive else -6, 6, count)
    return lit([float(x) for x in drawn])


def cases(c):
    for op in BFLOAT16 + BOTH:
        types = ("half", "bfloat16") if op in BOTH else ("bfloat16",)
        domain = (
            lit([float(x) for x in np.linspace(-0.99, 0.99, 64)])
            if op in ("Asin", "Acos", "Atanh")
            else numbers(80, 1, op in POSITIVE)
        )
        c.op(op, [domain], "steps", types=types)
    for op in BFLOAT16_PAIRS + BOTH_PAIRS:
        types = ("half", "bfloat16") if op in BOTH_PAIRS else ("bfloat16",)
        c.op(op, [numbers(96, 2, op in POSITIVE), numbers(96, 3, op in POSITIVE)], "steps", types=types)
    # Where the exponential overflows, and where it is lost in the sum.
    edges = [0.0, 1.0, 2.8125, 2.859375, 7.0, 7.0078125, 7.015625, 11.0, 11.125, 80.0, 89.5, float("inf")]
    edges = lit(edges + [-x for x in edges])
    for op in ("Sigmoid", "Softplus"):
        c.op(op, [edges], "edges", types=("half", "bfloat16"))
