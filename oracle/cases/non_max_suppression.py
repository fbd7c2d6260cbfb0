"""Non-maximum suppression in all versions."""

from values import SENTENCE

import numpy as np

BOXES = np.float32(
    [
        [0, 0, 1, 1],
        [0, 0.1, 1, 1.1],
        [0, -0.1, 1, 0.9],
        [0, 10, 1, 11],
        [1, 11.1, 0, 10.1],
        [0, 100, 1, 101],
        [0.5, 0.5, 0.5, 0.5],
    ]
)
SCORES = np.float32([0.9, 0.75, 0.6, 0.95, 0.5, 0.3, 0.3])
TYPES = {"float": np.float32, "half": np.float16}


def cases(c):
    for count in (0, 3, 30):
        c.op("NonMaxSuppression", [BOXES, SCORES, np.int32(count)], f"{count}", iou_threshold=0.5)
        for dtype, kind in TYPES.items():
            inputs = [BOXES.astype(kind), SCORES.astype(kind), np.int32(count)]
            name = f"{count}/{dtype}"
            c.op("NonMaxSuppressionV2", [*inputs, kind(0.5)], name, T=dtype, T_threshold=dtype)
            thresholds = [kind(0.5), kind(0.4)]
            c.op("NonMaxSuppressionV3", [*inputs, *thresholds], name, T=dtype, T_threshold=dtype)
            for padded in (False, True):
                attrs = {"T": dtype, "pad_to_max_output_size": padded}
                label = f"{name}/{'padded' if padded else 'short'}"
                c.op("NonMaxSuppressionV4", [*inputs, *thresholds], label, T_threshold=dtype, **attrs)
                c.op("NonMaxSuppressionV5", [*inputs, *thresholds, kind(0)], f"{label}/hard", **attrs)
                soft = [kind(0.5), kind(0.1), kind(0.5)]
                c.op("NonMaxSuppressionV5", [*inputs, *soft], f"{label}/soft", accuracy="rounding", **attrs)
    mixed = [BOXES, SCORES, np.int32(3), np.float16(0.3)]
    c.op("NonMaxSuppressionV2", mixed, "mixed", T="float", T_threshold="half")
    overlaps = np.float32(np.random.RandomState(0).rand(7, 7))
    c.op("NonMaxSuppressionWithOverlaps", [overlaps, SCORES, np.int32(5), np.float32(0.6), np.float32(0.35)])
    nothing = [np.zeros([0, 4], np.float32), np.zeros([0], np.float32)]
    c.op("NonMaxSuppressionV3", [*nothing, np.int32(3), np.float32(0.5), np.float32(0)], "none", types=["float"])
    combined(c)
    refusals(c)


def combined(c):
    scores = np.stack([SCORES, SCORES[::-1], np.float32(np.linspace(0.05, 0.9, 7))], axis=1)
    scores = np.stack([scores, np.roll(scores, 2, axis=0) * np.float32(0.97)])
    shared = np.stack([BOXES, BOXES * np.float32(0.5)])[:, :, None, :]
    own = np.repeat(shared, 3, axis=2) * np.float32([1, 0.9, 0.8])[None, None, :, None]
    for name, boxes in {"shared": shared, "own": own}.items():
        for padded in (False, True):
            for clipped in (False, True):
                for per_class, total in ((2, 4), (3, 20)):
                    inputs = [boxes, scores, np.int32(per_class), np.int32(total), np.float32(0.5), np.float32(0.2)]
                    label = f"{name}/{padded}/{clipped}/{total}"
                    c.op("CombinedNonMaxSuppression", inputs, label, pad_per_class=padded, clip_boxes=clipped)
    for name, change in {
        "total": {3: np.int32(0)},
        "per-class": {2: np.int32(0)},
        "threshold": {4: np.float32(1.5)},
        "boxes": {0: shared[:, :, :, :3]},
        "classes": {0: np.repeat(shared, 2, axis=2)},
        "scores": {1: scores[:, :5]},
        "batch": {1: scores[:1]},
    }.items():
        inputs = [shared, scores, np.int32(2), np.int32(4), np.float32(0.5), np.float32(0.2)]
        for at, value in change.items():
            inputs[at] = value
        c.op("CombinedNonMaxSuppression", inputs, f"refused/{name}", message=SENTENCE)


def refusals(c):
    good = [BOXES, SCORES, np.int32(3), np.float32(0.5), np.float32(0)]
    for name, change in {
        "count": {2: np.int32(-1)},
        "threshold": {3: np.float32(1.5)},
        "boxes": {0: BOXES[:, :3]},
        "boxes-rank": {0: BOXES[0]},
        "scores": {1: SCORES[:3]},
        "scores-rank": {1: SCORES[None]},
        "count-rank": {2: np.int32([3])},
        "threshold-rank": {3: np.float32([0.5])},
    }.items():
        inputs = list(good)
        for at, value in change.items():
            inputs[at] = value
        c.op("NonMaxSuppressionV3", inputs, f"refused/{name}", T="float", T_threshold="float", message=SENTENCE)
    c.op("NonMaxSuppressionV5", [*good, np.float32(-1)], "refused/sigma", T="float", message=SENTENCE)
    c.op("NonMaxSuppression", good[:3], "refused/threshold", iou_threshold=-0.1, message=SENTENCE)
    ragged = [np.zeros([3, 4], np.float32), SCORES[:3], np.int32(3), np.float32(0.5), np.float32(0)]
    c.op("NonMaxSuppressionWithOverlaps", ragged, "refused/square", message=SENTENCE)
