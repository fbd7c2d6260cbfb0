"""Recipes for ops that slide windows over images, and for the layers beside them."""

import values
from recipes import Like, recipe


class _Window:
    """A window over some spatial dimensions: what convolutions and pools share."""

    def __init__(self, s, spatial, dilated, explicit):
        self.batch, self.depth = s.small(1, 3), s.pick([1, 2, 3, 4, 8])
        self.size = [s.small(1, 9) if spatial == 2 else s.small(1, 5) for _ in range(spatial)]
        self.window = [s.small(1, min(size + 1, 4)) for size in self.size]
        self.step = [s.small(1, 3) for _ in range(spatial)]
        self.spread = [s.pick([1, 1, 2]) if dilated else 1 for _ in range(spatial)]
        if s.chance(0.5):
            self.step = [1] * spatial if s.chance(0.5) else [self.step[0]] * spatial
        self.padding = s.pick([b"SAME", b"VALID"])
        self.around = [(0, 0)] * spatial
        if explicit and s.chance(0.2):
            self.padding = b"EXPLICIT"
            self.around = [(s.small(0, window - 1), s.small(0, window - 1)) for window in self.window]

    def output(self):
        """The spatial size of the result."""
        found = []
        for size, window, step, spread, around in zip(self.size, self.window, self.step, self.spread, self.around):
            if self.padding == b"SAME":
                found.append(-(-size // step))
            else:
                found.append(max(-(-(size + sum(around) - (window - 1) * spread) // step), 0))
        return found

    def image(self):
        return (self.batch, *self.size, self.depth)

    def result(self, depth):
        return (self.batch, *self.output(), depth)

    def describe(self, a, ksize):
        """Sets the attributes."""
        a["padding"] = self.padding
        a["strides"] = [1, *self.step, 1]
        if ksize:
            a["ksize"] = [1, *self.window, 1]
        else:
            a["dilations"] = [1, *self.spread, 1]
        a.pop("explicit_paddings", None)
        if self.padding == b"EXPLICIT":
            a["explicit_paddings"] = [0, 0, *(side for sides in self.around for side in sides), 0, 0]
        if "data_format" in a:
            a["data_format"] = b"NDHWC" if len(self.size) == 3 else b"NHWC"


def _pool(s, a, explicit=False):
    window = _Window(s, 3 if "3D" in s.op else 2, False, explicit)
    window.describe(a, True)
    return window


@recipe("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D", "MaxPoolWithArgmax")
def _pooled(s, a):
    return [Like(_pool(s, a, s.op == "MaxPool").image())]


@recipe("MaxPoolV2")
def _pooled_v2(s, a):
    window = _pool(s, a)
    return [Like(window.image()), a.pop("ksize"), a.pop("strides")]


@recipe("MaxPoolGrad", "MaxPool3DGrad", "MaxPoolGradGrad", "MaxPool3DGradGrad", "MaxPoolGradV2", "MaxPoolGradGradV2")
def _pool_grad(s, a):
    window = _pool(s, a, s.op == "MaxPoolGrad")
    result = window.result(window.depth)
    gradient = window.image() if "GradGrad" in s.op else result
    inputs = [a.pop("ksize"), a.pop("strides")] if s.op.endswith("V2") else []
    return [Like(window.image()), Like(result), Like(gradient), *inputs]


@recipe("MaxPoolGradWithArgmax")
def _argmax_grad(s, a):
    window = _pool(s, a)
    count = window.depth
    for size in window.size:
        count *= size
    result = window.result(window.depth)
    if a.get("include_batch_in_index"):
        count *= window.batch
    return [Like(window.image()), Like(result), s.integers(0, count - 1, result)]


@recipe("AvgPoolGrad", "AvgPool3DGrad")
def _avg_pool_grad(s, a):
    window = _pool(s, a)
    return [window.image(), Like(window.result(window.depth))]


_CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")


@recipe(
    *_CONVOLUTIONS,
    *(f"{op}Backprop{what}" for op in ("Conv2D", "DepthwiseConv2dNative") for what in ("Input", "Filter")),
)
@recipe("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2")
def _convolution(s, a):
    spatial = 3 if "3D" in s.op else 2
    # The other kernels take no holes between the elements of a filter.
    window = _Window(s, spatial, s.op == "Conv2D" or s.chance(0.1), spatial == 2)
    if s.op.startswith("Depthwise"):
        window.step = [window.step[0]] * 2
        filters = (*window.window, window.depth, s.small(1, 3))
        depth = window.depth * filters[-1]
    else:
        groups = window.depth if s.chance(0.1) else 1
        filters = (*window.window, window.depth // groups, groups * s.small(1, 4))
        depth = filters[-1]
    window.describe(a, False)
    image, result = window.image(), window.result(depth)
    if "BackpropInput" in s.op:
        return [image, Like(filters), Like(result)]
    if "BackpropFilter" in s.op:
        return [Like(image), filters, Like(result)]
    return [Like(image), Like(filters)]


@recipe("LRN", "LRNGrad")
def _lrn(s, a):
    shape = [s.small(1, 3) for _ in range(3)] + [s.small(1, 9)]
    a.update(
        depth_radius=s.small(0, 3),
        bias=s.pick([1.0, 2.0]),
        alpha=s.pick([0.5, 1.0, 1e-3]),
        beta=s.pick([0.5, 0.75, 1.0]),
    )
    return [Like(shape)] * (3 if s.op == "LRNGrad" else 1)


def _normalized(s, a):
    shape = [s.small(1, 4) for _ in range(5 if s.op.endswith("V3") and s.chance(0.1) else 4)]
    if "data_format" in a:
        a["data_format"] = {4: s.pick([b"NHWC", b"NHWC", b"NCHW"]), 5: b"NDHWC"}[len(shape)]
    channels = shape[1] if a.get("data_format") == b"NCHW" else shape[-1]
    a["epsilon"] = s.pick([1e-3, 1e-4, 0.1])
    return shape, (channels,)


@recipe("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def _batch_norm(s, a):
    shape, channels = _normalized(s, a)
    a["exponential_avg_factor"] = s.pick([1.0, 1.0, 0.5, 0.0])
    is_empty = a.get("is_training", True) and a["exponential_avg_factor"] == 1.0
    return [Like(shape), *[Like(channels)] * 2, *[Like((0,) if is_empty else channels, values.pos)] * 2]


@recipe("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")
def _batch_norm_grad(s, a):
    shape, channels = _normalized(s, a)
    inputs = [Like(shape), Like(shape), *[Like(channels, values.pos)] * 3]
    return inputs + [Like((0,))] * s.op.endswith("V3")
