"""Resizing of images by every method, and the gradients."""

from values import SENTENCE, arr

import numpy as np

SIZES = {"up": [5, 7], "down": [2, 3], "same": [4, 5], "one": [1, 1], "long": [9, 2]}
ALIGNMENTS = {
    "plain": {},
    "corners": {"align_corners": True},
    "centers": {"half_pixel_centers": True},
}
SAMPLERS = ("lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic")


def cases(c):
    for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic", "ResizeArea"):
        images(c, op)
        refusals(c, op)
    gradients(c)
    translations(c)


def images(c, op):
    c.op(op, [arr(1, 3, 2, 1), [4, 5]], "types")
    for alignment, attrs in ALIGNMENTS.items():
        if op == "ResizeArea" and "half_pixel_centers" in attrs:
            continue
        for name, size in SIZES.items():
            channels = {"up": 3, "down": 1, "same": 2, "one": 3, "long": 4}[name]
            c.op(op, [arr(2, 4, 5, channels), size], f"{alignment}/{name}", types=["float"], **attrs)
        c.op(op, [arr(1, 4, 5, 3), [3, 8]], f"{alignment}/bytes", types=["uint8"], **attrs)
    c.op(op, [arr(1, 1, 1, 2), [3, 2]], "pixel", types=["float"])
    c.op(op, [arr(0, 2, 2, 1), [3, 3]], "no-images", types=["float"])


def refusals(c, op):
    def refused(name, image, size, **attrs):
        c.op(op, [image, np.array(size, np.int32)], name, types=["float"], message=SENTENCE, **attrs)

    refused("size-zero", arr(1, 2, 2, 1), [0, 3])
    refused("size-negative", arr(1, 2, 2, 1), [3, -1])
    refused("size-long", arr(1, 2, 2, 1), [3, 3, 3])
    refused("rank", arr(2, 2, 1), [3, 3])
    refused("empty", arr(1, 0, 2, 1), [3, 3])
    refused("channels", arr(1, 2, 2, 0), [3, 3])
    if op != "ResizeArea":
        refused("both", arr(1, 2, 2, 1), [3, 3], align_corners=True, half_pixel_centers=True)


def gradients(c):
    for alignment, attrs in ALIGNMENTS.items():
        for name, (grads, original) in {
            "up": (arr(2, 5, 7, 3), arr(2, 4, 5, 3, seed=1)),
            "down": (arr(1, 2, 3, 1), arr(1, 4, 5, 1, seed=1)),
        }.items():
            c.op("ResizeBilinearGrad", [grads, original], f"{alignment}/{name}", **attrs)
            c.op("ResizeBicubicGrad", [grads, original], f"{alignment}/{name}", **attrs)
        c.op("ResizeNearestNeighborGrad", [arr(1, 5, 3, 2), [2, 4]], alignment, **attrs)
    c.op(
        "ResizeNearestNeighborGrad",
        [arr(1, 5, 3, 1), [2, 4]],
        "both",
        few=True,
        align_corners=True,
        half_pixel_centers=True,
    )
    for op in ("ResizeBilinearGrad", "ResizeBicubicGrad"):
        c.op(op, [arr(1, 0, 3, 1), arr(1, 4, 5, 1)], "empty", types=["float"], message=SENTENCE)
        c.op(op, [arr(1, 2, 3), arr(1, 4, 5, 1)], "rank", types=["float"], message=SENTENCE)
        c.op(op, [arr(1, 2, 3, 1), arr(4, 5, 1)], "original-rank", types=["float"], message=SENTENCE)
    c.op("ResizeNearestNeighborGrad", [arr(1, 2, 3, 1), [0, 1]], "size", types=["float"], message=SENTENCE)
    c.op("ResizeNearestNeighborGrad", [arr(2, 3, 1), [2, 1]], "rank", types=["float"], message=SENTENCE)


def translations(c):
    c.accuracy("rounding")
    scaled = [[5, 3], np.float32([1.3, 0.6]), np.float32([0.4, -0.3])]
    c.op("ScaleAndTranslate", [arr(1, 4, 5, 1), *scaled], "types")
    for sampler in SAMPLERS:
        for antialias in (True, False):
            attrs = {"kernel_type": sampler, "antialias": antialias}
            name = f"{sampler}/{'smooth' if antialias else 'plain'}"
            c.op("ScaleAndTranslate", [arr(1, 4, 6, 2), *scaled], name, types=["float"], **attrs)
            c.op(
                "ScaleAndTranslateGrad",
                [arr(1, 5, 3, 2), arr(1, 4, 6, 2), *scaled[1:]],
                name,
                **attrs,
            )
    for name, scale in {"zero": [0, 1], "negative": [1, -1], "long": [1, 1, 1]}.items():
        c.op(
            "ScaleAndTranslate",
            [arr(1, 2, 2, 1), [3, 3], np.float32(scale), np.float32([0, 0])],
            f"scale-{name}",
            types=["float"],
            message=SENTENCE,
        )
    zeros, ones = np.float32([0, 0]), np.float32([1, 1])
    c.op("ScaleAndTranslate", [arr(1, 2, 2, 1), [3, 3], ones, zeros], "kernel", types=["float"], kernel_type="cubic")
    c.op("ScaleAndTranslate", [arr(1, 2, 2, 1), [3, 3], ones, np.float32([9, 9])], "outside", types=["float"])
