"""Boxes drawn into images, and random boxes."""

from values import SENTENCE, arr, unit

import numpy as np

BOXES = np.float32(
    [
        [[0.1, 0.1, 0.6, 0.7], [-0.5, 0.3, 1.5, 0.4], [0.9, 0.9, 0.2, 0.2]],
        [[0, 0, 1, 1], [2, 2, 3, 3], [0.5, 0.5, 0.5, 0.5]],
    ]
)
OBJECTS = np.float32([[[0.1, 0.2, 0.7, 0.8], [0.5, 0.5, 0.9, 0.9]]])


def cases(c):
    drawn(c)
    sampled(c)
    for size in ([3, 2], [5, 4], [1, 4]):
        p = c.program(f"RandomCrop/{size[0]}", producer=7)
        image = p.const(np.arange(40, dtype=np.int32).reshape(5, 4, 2))
        crop = p.node("RandomCrop", [image, p.const(np.array(size, np.int64))], T="int32", seed=3, seed2=11)
        for _ in range(3):
            p.step(fetch=[crop])
    c.op("RandomCrop", [arr(5, 4, 1), [5, 4]], "types", seed=1)
    c.op("RandomCrop", [arr(5, 4, 1), [6, 4]], "high", types=["float"], message=SENTENCE)
    c.op("RandomCrop", [arr(5, 4, 1), [5, 5]], "wide", types=["float"], message=SENTENCE)
    c.op("RandomCrop", [arr(5, 4), [5, 5]], "rank", types=["float"], message=SENTENCE)


def drawn(c):
    many = np.float32([[[i / 20, i / 20, 1 - i / 20, 1 - i / 20] for i in range(12)]])
    for depth in (1, 3, 4):
        c.op("DrawBoundingBoxes", [unit(2, 6, 7, depth), BOXES], f"{depth}")
        colors = np.float32([[0.1, 0.2, 0.3, 0.4, 9], [0.5, 0.6, 0.7, 0.8, 9]])
        c.op("DrawBoundingBoxesV2", [unit(2, 6, 7, depth), BOXES, colors], f"{depth}")
    c.op("DrawBoundingBoxes", [unit(1, 24, 24, 3), many], "many", types=["float"])
    c.op("DrawBoundingBoxesV2", [unit(2, 6, 7, 3), BOXES, np.zeros([0, 3], np.float32)], "default", types=["float"])
    c.op(
        "DrawBoundingBoxesV2",
        [unit(2, 6, 7, 3), BOXES, np.zeros([1, 2], np.float32)],
        "colors",
        types=["float"],
        message=SENTENCE,
    )
    c.op("DrawBoundingBoxes", [unit(2, 6, 7, 2), BOXES], "depth", types=["float"], message=SENTENCE)
    c.op("DrawBoundingBoxes", [unit(1, 6, 7, 3), BOXES], "batch", types=["float"], message=SENTENCE)
    c.op("DrawBoundingBoxes", [unit(2, 6, 7, 3), BOXES[0]], "rank", types=["float"], message=SENTENCE)
    c.op("DrawBoundingBoxes", [unit(2, 6, 7, 3), np.zeros([2, 0, 4], np.float32)], "none", types=["float"])


def sampled(c):
    settings = {
        "plain": {},
        "wide": {"aspect_ratio_range": [1.5, 3.0], "area_range": [0.3, 0.9]},
        "hard": {"aspect_ratio_range": [0.1, 0.11], "area_range": [0.99, 1.0], "max_attempts": 5},
    }
    size = np.array([61, 47, 3], np.int32)
    for name, attrs in settings.items():
        p = c.program(f"SampleDistortedBoundingBox/{name}")
        inputs = [p.const(size), p.const(OBJECTS)]
        first = p.node(
            "SampleDistortedBoundingBox", inputs, T="int32", seed=5, seed2=9, min_object_covered=0.7, **attrs
        )
        inputs.append(p.const(np.float32(0.4)))
        second = p.node("SampleDistortedBoundingBoxV2", inputs, T="int32", seed=8, seed2=2, **attrs)
        for _ in range(4):
            p.step(fetch=[f"{node}:{i}" for node in (first, second) for i in range(3)])
        for seed in range(4):
            c.op(
                "StatelessSampleDistortedBoundingBox",
                [size, OBJECTS, np.float32(0.5), np.array([seed, 77], np.int64)],
                f"{name}/{seed}",
                T="int32",
                Tseed="int64",
                **attrs,
            )
    stateless = "StatelessSampleDistortedBoundingBox"
    c.op(stateless, [[31, 27, 3], OBJECTS, np.float32(0.1), [1, 2]], "types")
    empty = np.zeros([1, 0, 4], np.float32)
    fixed = {"T": "int32", "Tseed": "int32", "message": SENTENCE}
    c.op(stateless, [size, empty, np.float32(0.1), [1, 2]], "image", use_image_if_no_bounding_boxes=True, **fixed)
    c.op(stateless, [size, empty, np.float32(0.1), [1, 2]], "none", **fixed)
    c.op(stateless, [size, OBJECTS * 2, np.float32(0.1), [1, 2]], "outside", **fixed)
    c.op(stateless, [size, OBJECTS[0], np.float32(0.1), [1, 2]], "rank", **fixed)
    c.op(stateless, [size[:2], OBJECTS, np.float32(0.1), [1, 2]], "size", **fixed)
    c.op(stateless, [size, OBJECTS, np.float32(-1), [1, 2]], "covered", **fixed)
    c.op(stateless, [size, OBJECTS, np.float32(0.1), [1, 2, 3]], "seed", **fixed)
    for name, attrs in {
        "attempts": {"max_attempts": 0},
        "area": {"area_range": [0.5, 1.5]},
        "area-negative": {"area_range": [-0.5, 1.0]},
        "aspect": {"aspect_ratio_range": [1.0]},
    }.items():
        c.op(stateless, [size, OBJECTS, np.float32(0.1), [1, 2]], name, **fixed, **attrs)
