"""Glimpses and projective transforms."""

from values import SENTENCE, arr

import numpy as np

TURN = np.float32([[0.8, -0.6, 1.2, 0.6, 0.8, -0.7, 0.01, -0.02], [1, 0, 0.5, 0, 1, -2, 0, 0]])


def cases(c):
    offsets = np.float32([[0, 0], [0.6, -0.9]])
    for version in ("ExtractGlimpse", "ExtractGlimpseV2"):
        for centered in (True, False):
            for normalized in (True, False):
                attrs = {"centered": centered, "normalized": normalized, "uniform_noise": False, "noise": "zero"}
                places = offsets if normalized else offsets * 3
                c.op(version, [arr(2, 5, 6, 2), [3, 4], places], f"{centered}/{normalized}", **attrs)
        inside = np.float32([[0, 0]])
        c.op(version, [arr(1, 5, 6, 1), [3, 2], inside], "uniform")
        c.op(version, [arr(1, 5, 6, 1), [3, 2], inside], "gaussian", uniform_noise=False, noise="gaussian")
        c.op(version, [arr(1, 5, 6, 1), [9, 9], inside], "noise", accuracy="random")
        c.op(version, [arr(1, 5, 6, 1), [0, 2], inside], "empty")
        c.op(version, [arr(1, 5, 6, 1), [3, 2], inside], "both", noise="zero", message=SENTENCE)
        c.op(version, [arr(1, 5, 6, 1), [3, 2], inside], "unknown", uniform_noise=False, noise="pink", message=SENTENCE)
        c.op(version, [arr(1, 5, 6, 1), [3, 2], offsets], "batch", message=SENTENCE)
        c.op(version, [arr(5, 6, 1), [3, 2], inside], "rank", message=SENTENCE)
        c.op(version, [arr(1, 5, 6, 1), [3, 2, 2], inside], "size", message=SENTENCE)
    for interpolation in ("NEAREST", "BILINEAR"):
        for mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
            attrs = {"interpolation": interpolation, "fill_mode": mode}
            name = f"{interpolation}/{mode}"
            c.op("ImageProjectiveTransformV2", [arr(2, 4, 5, 2), TURN, [6, 3]], name, types=["float"], **attrs)
            c.op(
                "ImageProjectiveTransformV3",
                [arr(2, 4, 5, 1), TURN[:1] * 3, [6, 3], np.float32(-1.5)],
                name,
                types=["float"],
                **attrs,
            )
        c.op(
            "ImageProjectiveTransformV2",
            [arr(2, 4, 3, 1), TURN[:1], [3, 3]],
            f"{interpolation}/types",
            interpolation=interpolation,
        )
    refused = {"types": ["float"], "interpolation": "NEAREST", "message": SENTENCE}
    c.op("ImageProjectiveTransformV2", [arr(2, 4, 5, 2), TURN[:, :7], [6, 3]], "columns", **refused)
    c.op("ImageProjectiveTransformV2", [arr(3, 4, 5, 2), TURN, [6, 3]], "batch", **refused)
    c.op("ImageProjectiveTransformV2", [arr(4, 5, 2), TURN, [6, 3]], "rank", **refused)
    c.op("ImageProjectiveTransformV2", [arr(2, 4, 5, 2), TURN, [0, 3]], "size", **refused)
    c.op("ImageProjectiveTransformV3", [arr(2, 4, 5, 2), TURN, [6, 3], np.float32([1])], "fill", **refused)
