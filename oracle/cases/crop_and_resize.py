"""Boxes of images, resized to one size, and the gradients."""

from values import SENTENCE, arr

import numpy as np

BOXES = np.float32([[0, 0, 1, 1], [0.2, 0.6, 1.3, 0.2], [-0.5, 0.1, 0.4, 0.9]])
OWNERS = np.int32([0, 1, 1])


def cases(c):
    for method in ("bilinear", "nearest"):
        attrs = {"method": method, "extrapolation_value": -2.5}
        c.op("CropAndResize", [arr(2, 4, 5, 2), BOXES, OWNERS, [3, 4]], f"{method}/types", **attrs)
        c.op("CropAndResize", [arr(2, 4, 5, 1), BOXES, OWNERS, [1, 1]], f"{method}/pixel", types=["float"], **attrs)
        for size in ([3, 4], [1, 1]):
            c.op(
                "CropAndResizeGradImage",
                [arr(3, *size, 2), BOXES, OWNERS, [2, 4, 5, 2]],
                f"{method}/{size[0]}",
                method=method,
                accuracy="rounding",
            )
    for size in ([3, 4], [1, 1]):
        grads = [arr(3, *size, 2), arr(2, 4, 5, 2, seed=1), BOXES, OWNERS]
        c.op("CropAndResizeGradBoxes", grads, f"{size[0]}", types=["float", "uint8"])
    nothing = [np.zeros([0, 4], np.float32), np.zeros([0], np.int32)]
    c.op("CropAndResize", [arr(2, 4, 5, 1), *nothing, [3, 4]], "no-boxes", types=["float"])
    c.op("CropAndResizeGradImage", [arr(0, 3, 4, 1), *nothing, [2, 4, 5, 1]], "no-boxes", types=["float"])
    c.op("CropAndResizeGradBoxes", [arr(0, 3, 4, 1), arr(2, 4, 5, 1), *nothing], "no-boxes", types=["float"])
    refusals(c)


def refusals(c):
    def refused(name, image, boxes, owners, size):
        inputs = [image, boxes, np.int32(owners), np.int32(size)]
        c.op("CropAndResize", inputs, name, types=["float"], message=SENTENCE)

    refused("owner", arr(1, 4, 5, 1), BOXES, OWNERS, [3, 3])
    refused("owner-negative", arr(2, 4, 5, 1), BOXES, [0, -1, 1], [3, 3])
    refused("size", arr(2, 4, 5, 1), BOXES, OWNERS, [3, 0])
    refused("size-long", arr(2, 4, 5, 1), BOXES, OWNERS, [3, 1, 1])
    refused("owners", arr(2, 4, 5, 1), BOXES, [0, 1], [3, 3])
    refused("columns", arr(2, 4, 5, 1), BOXES[:, :3], OWNERS, [3, 3])
    refused("rank", arr(4, 5, 1), BOXES, OWNERS, [3, 3])
    refused("image", arr(2, 0, 5, 1), BOXES, OWNERS, [3, 3])
    refused("infinite", arr(2, 4, 5, 1), BOXES + np.float32([0, 0, np.inf, 0]), OWNERS, [3, 3])
    c.op("CropAndResizeGradImage", [arr(2, 3, 4, 1), BOXES, OWNERS, [2, 4, 5, 1]], "grads", types=["float"])
    c.op("CropAndResizeGradImage", [arr(3, 3, 4, 1), BOXES, OWNERS, [2, 4, 5, 2]], "depth", types=["float"])
    c.op("CropAndResizeGradImage", [arr(3, 3, 4, 1), BOXES, OWNERS, [2, 4, 5]], "size", types=["float"])
    c.op("CropAndResizeGradBoxes", [arr(3, 3, 4, 1), arr(2, 4, 5, 2), BOXES, OWNERS], "depth", types=["float"])
