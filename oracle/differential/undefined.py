"""Where stock's own answer means nothing: it reads memory that nobody wrote, leaves the order open, or converts numbers
that do not fit. There, and only there, our answer may differ.

A rule gets a node, its inputs and one of its outputs as stock gave it; it returns a mask of the elements that mean
nothing, or True for all of them.
"""

import protos
import values

import ml_dtypes
import numpy as np
from google.protobuf import message
from tensorflow.core.framework import summary_pb2


def meaningless(node, inputs, number, expected):
    """The elements of output `number` for which stock's answer means nothing: a mask, False for none, or True for all."""
    if is_arbitrary(node, inputs) or _is_unwritten(node, number):
        return True
    rule = _RULES.get(node.op)
    found = rule(node, inputs, expected) if rule else False
    return found if found is True else found | _denormal(inputs, expected)


def _is_unwritten(node, number):
    """The values that a batch normalization keeps for its gradient, where there is none because nothing is learned."""
    return (
        node.op.startswith("FusedBatchNorm")
        and "Grad" not in node.op
        and number >= 3
        and not node.attrs.get("is_training", True)
    )


def _denormal(inputs, expected):
    """Numbers too small to be normal are zero in stock's vector loops and themselves in its calls of C's library."""
    found = False
    for array in inputs:
        if array.dtype in (np.float32, np.float64, values.NUMPY["bfloat16"]):
            size = np.abs(array.astype(np.float64))
            small = (size > 0) & (size < float(ml_dtypes.finfo(array.dtype).tiny))
            if small.any() and _fits(small.shape, expected.shape):
                found = found | np.broadcast_to(small, expected.shape)
    return found


def _fits(shape, into):
    try:
        return np.broadcast_shapes(shape, into) == into
    except ValueError:
        return False


def is_arbitrary(node, inputs):
    """Whether it is chance that stock accepts a node: a scalar of indices has no dimension to compare with updates, and a
    dimension of 16 bits is read as one of 32."""
    if node.op in ("ArgMax", "ArgMin"):
        return inputs[1].dtype == np.int16
    return node.op == "ScatterNdNonAliasingAdd" and inputs[1].ndim == 0


def in_order(node, arrays):
    """Outputs of a node with what stock leaves in any order put in one order."""
    if node.op.startswith("TopK") and not node.attrs.get("sorted", True):
        values_, indices = arrays
        order = np.lexsort((indices, -values_.astype(np.float64)), axis=-1)
        return [np.take_along_axis(array, order, -1) for array in arrays]
    return arrays


def _cast(node, inputs, expected):
    """Floats beyond the range of an integer: C++ leaves them open, and stock's vector and scalar loops disagree but for
    the types that the processor converts to by itself."""
    source, target = inputs[0], values.NUMPY[node.attrs["DstT"]]
    if (
        node.attrs["DstT"] not in values.INTS
        or node.attrs["DstT"] in ("int32", "int64")
        or source.dtype.kind not in "fcV"
    ):
        return False
    real = source.real if source.dtype.kind == "c" else source
    real = real.astype(np.float64)
    info = np.iinfo(target)
    with np.errstate(all="ignore"):
        return ~((real > float(info.min) - 1) & (real < float(info.max) + 1))


def _counter(node, inputs, expected):
    """A counter shorter than the algorithm's: stock reads what lies behind it."""
    return inputs[2].size < 2


def _tiny_reciprocal(node, inputs, expected):
    """Reciprocals that are too small to be refined: the processor's own estimate, which vendors make differently."""
    if expected.dtype not in (np.float32, values.NUMPY["bfloat16"]):
        return _infinite_complex(node, inputs, expected)
    size = np.abs(inputs[0].astype(np.float64))
    return np.isfinite(size) & (size > 2.0**111)


def _no_indices(node, inputs, expected):
    """Without indices stock leaves the rows of the result as it found them."""
    return inputs[1].size == 0


def _not_a_number(node, inputs, expected):
    """Rows with a NaN have no order that stock's selection could follow."""
    row_has = np.isnan(inputs[0].astype(np.float64)).any(axis=-1) if inputs[0].size else np.zeros(expected.shape, bool)
    return row_has if row_has.shape == expected.shape else False


def _row_not_a_number(node, inputs, expected):
    """The largest elements of a row with a NaN: where it is found depends on the comparisons that the search makes."""
    if inputs[0].dtype.kind not in "fV" or not inputs[0].size:
        return False
    return np.broadcast_to(np.isnan(inputs[0].astype(np.float64)).any(axis=-1, keepdims=True), expected.shape)


def _rows_with_nan(node, inputs, expected):
    """Columns with a NaN: whether one outlasts the rows after it depends on where a column lies in a vector register."""
    data, ids = inputs[:2]
    if data.dtype.kind not in "fV":
        return False
    columns = np.isnan(data.astype(np.float64)).any(axis=tuple(range(ids.ndim)))
    return np.broadcast_to(columns, expected.shape)


def _overflow(node, inputs, expected):
    """Sums of products beyond the largest float: where they become infinite depends on order and processor."""
    if expected.dtype.kind not in "fcV" or not expected.size:
        return False
    adjoint = [
        node.attrs.get(name, node.attrs.get(other, False))
        for name, other in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    ]
    x, y = (np.abs(np.swapaxes(a, -1, -2) if turned else a).astype(np.float64) for a, turned in zip(inputs, adjoint))
    largest = float(ml_dtypes.finfo(expected.dtype).max)
    with np.errstate(all="ignore"):
        products = np.where(np.isfinite(x), x, 0)[..., :, :, None] * np.where(np.isfinite(y), y, 0)[..., None, :, :]
        return products.sum(axis=-2) > largest


def _overflow_on_the_way(node, inputs, expected):
    """Sums whose terms together leave the range: whether a part of them becomes infinite, and so perhaps no number with
    the rest, depends on the order of adding."""
    data, axes = inputs
    if expected.dtype.kind not in "fcV" or not expected.size:
        return False
    size = np.abs(data).astype(np.float64)
    axes = tuple(int(axis) % data.ndim for axis in axes.ravel()) if data.ndim else ()
    with np.errstate(all="ignore"):
        total = np.where(np.isfinite(size), size, 0).sum(axis=axes, keepdims=bool(node.attrs.get("keep_dims", False)))
    return total > float(ml_dtypes.finfo(data.real.dtype if data.dtype.kind == "c" else data.dtype).max)


def _phase(node, inputs, expected):
    """Where rounding turns the argument of a sine, and so the result: as far from zero, or as near to a root of a Bessel
    function, as precision goes."""
    size = np.abs(inputs[0].astype(np.float64))
    if node.op.startswith("Fresnel"):
        size = np.minimum(size, 1e100) ** 2 * 0.02
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            size = size / np.minimum(np.abs(expected.astype(np.float64)), 1)
    return ~(size * float(ml_dtypes.finfo(expected.dtype).eps) < _PHASE[protos.dtype_of(expected)])


# How many of a type's roundings the tolerance of the comparison covers.
_PHASE = {"half": 1e-1, "float": 2e-6, "double": 1e-10}


def _reciprocal(node, inputs, expected):
    """Ends of the range, where stock's vector loop multiplies by a reciprocal and its scalar loop divides."""
    info = ml_dtypes.finfo(expected.dtype) if expected.dtype.kind != "c" else np.finfo(expected.dtype)
    large, tiny = float(info.max) / 8, float(info.tiny) * 8
    size = [np.abs(array).astype(np.float64).reshape(expected.shape) for array in inputs]
    return np.logical_or.reduce([(array > large) | (array < tiny) for array in size])


def _both_signs(node, inputs, expected):
    """Left of zero the series has terms of both signs, which cancel in single precision."""
    return np.broadcast_to(inputs[1] < 0, expected.shape) if expected.dtype == np.float32 else False


def _shape_of_gamma(node, inputs, expected):
    """Shapes near zero, where stock takes the difference of two numbers near one, and large ones, where the exponent is a
    small difference of numbers so large that the last digit of one of them, which C's library leaves open, is more than
    the tolerance of the comparison."""
    shape = inputs[0].astype(np.float64)
    limit = 75 if expected.dtype == np.float32 else 1e6
    return np.broadcast_to((shape > 0) & (shape < 1e-2) | (shape > limit), expected.shape)


def _complement_of_gamma(node, inputs, expected):
    """Beside that, small results below one: there stock takes the difference of one and a number near it, which is
    rounded by more than the tolerance of the comparison."""
    small = expected.dtype == np.float32 and (np.abs(expected) < 0.03) & (
        np.broadcast_to(inputs[1], expected.shape) <= 1
    )
    return small | _shape_of_gamma(node, inputs, expected)


def _exponential(node, inputs, expected):
    """Exponentials of complex numbers that leave the range in one part before they do in the other."""
    limit = 85 if expected.dtype == np.complex64 else 705
    return np.abs(inputs[0].real) > limit if expected.dtype.kind == "c" else False


def _squared_size(node, inputs, expected):
    """Complex numbers whose squared size vanishes or overflows count as zero or infinity in some of stock's loops."""
    if expected.dtype.kind != "c":
        return False
    size, limit = np.abs(inputs[-1]), 1e18 if expected.dtype == np.complex64 else 1e153
    return np.broadcast_to((size > 0) & ((size < 1 / limit) | (size > limit)), expected.shape)


def _infinite_complex(node, inputs, expected):
    """Complex infinities have zero as their inverse in stock's scalar loop, and none in its vector loop."""
    return np.broadcast_to(np.isinf(inputs[-1]), expected.shape) if expected.dtype.kind == "c" else False


def _overflowing_root(node, inputs, expected):
    """Complex roots: stock's vector loop adds a part and the size of a number before it halves them, its scalar loop after."""
    if expected.dtype.kind != "c":
        return False
    x, limit = inputs[0], float(np.finfo(expected.dtype).max)
    with np.errstate(all="ignore"):
        return np.isfinite(x) & (
            np.abs(x.real.astype(np.float64)) / 2 + np.hypot(x.real / 2.0, x.imag / 2.0) > limit / 2
        )


def _large_beta(node, inputs, expected):
    """Parameters whose product leaves the range: stock's series finds no number though the function has a value. And those
    for which the exponent is a small difference of numbers so large that the last digit of one of them, which C's library
    leaves open, is more than the tolerance of the comparison."""
    limit = 40 if expected.dtype == np.float32 else 1e6
    with np.errstate(all="ignore"):
        return np.broadcast_to(inputs[0] + inputs[1] > limit, expected.shape)


def _cancelled_loss(node, inputs, expected):
    """Losses whose terms are larger than they are: labels below zero make terms of both signs, each of which is rounded."""
    if expected.ndim != 1 or not all(array.size for array in inputs):
        return False
    logits, labels = (np.atleast_1d(array.astype(np.float64)) for array in inputs)
    with np.errstate(all="ignore"):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        terms = np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted
        if logits.shape[-1] == 1:
            terms = terms + np.log(labels.shape[-1])
        size = np.broadcast_to(np.abs(labels * terms).sum(axis=-1), expected.shape)
        return size > 4 * np.abs(expected.astype(np.float64))


def _unfinished(node, inputs, expected):
    """Metadata that is no message: stock goes on with what it has read, bytes behind the text included."""
    try:
        summary_pb2.SummaryMetadata.FromString(inputs[2].item())
    except message.DecodeError:
        return True
    return False


def _no_gradient(node, inputs, expected):
    """A gradient without elements: stock leaves the result as it found it."""
    return any(array.size == 0 for array in inputs)


def _shared_out(node, inputs, expected):
    """More numbers than one thread of stock draws: each thread starts at a place of its own in the stream, and how many
    there are depends on the machine."""
    return expected.size > 200


def _leaves_range(node, inputs, expected):
    """Sums of products whose terms are so large that it depends on the order of adding what becomes of them."""
    if expected.dtype.kind not in "fV" or not expected.size:
        return False
    largest, terms = 1.0, 1
    for array in inputs:
        if array.dtype.kind in "fV":
            known = np.abs(array.astype(np.float64))
            largest = min(largest * float(max(np.where(np.isfinite(known), known, 0).max(initial=0), 1)), 1e308)
            terms = max(terms, array.size)
    if largest < float(ml_dtypes.finfo(expected.dtype).max) / terms:
        return False
    return ~(np.abs(expected.astype(np.float64)) < float(ml_dtypes.finfo(expected.dtype).max) / 1e3)


def _sum_of_products(node, inputs, expected):
    """Beside that, in 16 bits, in which stock rounds each step, results that are small beside others, because terms
    cancel."""
    open_ones = _leaves_range(node, inputs, expected)
    if expected.dtype.kind not in "fV" or expected.dtype.itemsize != 2 or not expected.size:
        return open_ones
    size = np.abs(expected.astype(np.float64))
    return open_ones | (size < 0.1 * size[np.isfinite(size)].max(initial=0))


def _narrow_difference(node, inputs, expected):
    """Roots of small differences in 16 bits, which rounding turns by more than the tolerance of the comparison."""
    return expected.dtype.itemsize == 2


def _small_mean(node, inputs, expected):
    """Beside that, means and variances that are small beside the numbers that they are taken of."""
    if expected.ndim != 1 or not inputs[0].size:
        return _leaves_range(node, inputs, expected)
    size = np.abs(inputs[0].astype(np.float64))
    largest = np.where(np.isfinite(size), size, 0).max()
    return (np.abs(expected.astype(np.float64)) < 0.01 * largest) | _leaves_range(node, inputs, expected)


def _pooled_nan(node, inputs, expected):
    """Whether a NaN is larger than a number, or padding, depends on where it lies in a vector register."""
    return bool(np.isnan(inputs[0].astype(np.float64)).any())


def _convolution_gradient(node, inputs, expected):
    return _no_gradient(node, inputs, expected) or _sum_of_products(node, inputs, expected)


def _volume_gradient(node, inputs, expected):
    """Beside that, gradients of volumes where something is no finite number: what else becomes none depends on which
    zeros stock multiplies, those of padded images or those between gradients, and this on the size of the cache."""
    if not all(np.isfinite(array.astype(np.float64)).all() for array in inputs):
        return True
    return _convolution_gradient(node, inputs, expected)


def _squares(node, inputs, expected):
    """Squares that overflow in 16 bits reach other pixels by stock's running sums."""
    return expected.dtype == np.float16 and not np.all(np.abs(inputs[0]) < 200)


def _beyond_the_square(node, inputs, expected):
    """Columns beyond a square: stock applies all reflections to them at once, by products, which spread what is no number
    over whole columns, and which round by more than the tolerance of the comparison in 16 bits."""
    rows, columns = inputs[0].shape[-2:]
    if columns <= rows:
        return False
    beyond = np.broadcast_to(np.arange(expected.shape[-1]) >= rows, expected.shape)
    if expected.dtype == np.float16:
        return beyond
    finite = [np.isfinite(array).all(axis=(-2, -1), keepdims=True) for array in (inputs[0], expected)]
    return beyond & ~np.logical_and(*finite)


def _quantized_nan(node, inputs, expected):
    """NaN becomes the end of the range in stock's vector loops or stays itself, by where it lies."""
    return np.isnan(inputs[0]) if inputs[0].shape == expected.shape else False


def _color_nan(node, inputs, expected):
    """Colors with a NaN: which of three numbers is the largest depends on the order of comparisons."""
    if inputs[0].shape != expected.shape:
        return False
    return np.broadcast_to(np.isnan(inputs[0].astype(np.float64)).any(axis=-1, keepdims=True), expected.shape)


_RULES = {
    **dict.fromkeys(("RGBToHSV", "HSVToRGB", "AdjustHue", "AdjustSaturation"), _color_nan),
    **{f"FakeQuantWithMinMax{kind}": _quantized_nan for kind in ("Args", "Vars", "VarsPerChannel")},
    **dict.fromkeys(
        (
            "MaxPoolGrad",
            "MaxPoolGradV2",
            "MaxPool3DGrad",
            "MaxPoolGradGrad",
            "MaxPool3DGradGrad",
            "AvgPoolGrad",
            "AvgPool3DGrad",
        ),
        _no_gradient,
    ),
    **{f"{kind}ApplyCenteredRMSProp": _narrow_difference for kind in ("", "Sparse", "Resource", "ResourceSparse")},
    "MaxPool3D": _pooled_nan,
    "AvgPool3D": _pooled_nan,
    "Einsum": _leaves_range,
    **{f"FusedBatchNorm{name}": _small_mean for name in ("", "V2", "V3", "Grad", "GradV2", "GradV3")},
    **dict.fromkeys(("ParameterizedTruncatedNormal", "StatelessParameterizedTruncatedNormal"), _shared_out),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _sum_of_products),
    **{
        f"{op}Backprop{to}": _convolution_gradient
        for op in ("Conv2D", "DepthwiseConv2dNative")
        for to in ("Input", "Filter")
    },
    **{f"Conv3DBackprop{to}V2": _volume_gradient for to in ("Input", "Filter")},
    "Qr": _beyond_the_square,
    "TensorSummaryV2": _unfinished,
    "Sqrt": _overflowing_root,
    "Betainc": _large_beta,
    "SoftmaxCrossEntropyWithLogits": _cancelled_loss,
    "LRN": _squares,
    "Inv": _tiny_reciprocal,
    "Reciprocal": _tiny_reciprocal,
    **{f"Bessel{name}": _phase for name in ("J0", "J1", "Y0", "Y1")},
    "FresnelCos": _phase,
    "FresnelSin": _phase,
    "SqrtGrad": _reciprocal,
    "Zeta": _both_signs,
    "Polygamma": _both_signs,
    **dict.fromkeys(("Igamma", "IgammaGradA", "RandomGammaGrad"), _shape_of_gamma),
    "Igammac": _complement_of_gamma,
    **dict.fromkeys(("Sigmoid", "Exp", "Expm1", "Sinh", "Cosh"), _exponential),
    **dict.fromkeys(("Log", "Xlogy", "Xlog1py", "DivNoNan"), _squared_size),
    "Cast": _cast,
    "NthElement": _not_a_number,
    "TopK": _row_not_a_number,
    "TopKV2": _row_not_a_number,
    "Div": _infinite_complex,
    "RealDiv": _infinite_complex,
    "Xdivy": _infinite_complex,
    "SegmentMin": _rows_with_nan,
    "SegmentMax": _rows_with_nan,
    "Sum": _overflow_on_the_way,
    "Mean": _overflow_on_the_way,
    "MatMul": _overflow,
    "SparseMatMul": _overflow,
    "BatchMatMul": _overflow,
    "BatchMatMulV2": _overflow,
    "BatchMatMulV3": _overflow,
    "SparseSegmentSumGrad": _no_indices,
    "SparseSegmentMeanGrad": _no_indices,
    "SparseSegmentSqrtNGrad": _no_indices,
    "StatelessRandomGammaV3": _counter,
    **{
        f"Stateless{op}V2": _counter
        for op in ("RandomUniform", "RandomNormal", "TruncatedNormal", "RandomUniformInt", "RandomUniformFullInt")
    },
}
