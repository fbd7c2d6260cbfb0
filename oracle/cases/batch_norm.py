"""Batch normalization, for training and inference, and its gradients."""

from values import *

import numpy as np

VERSIONS = ("", "V2", "V3")


def normalize(c, name, image, versions=VERSIONS, types=("float",), channels=None, running=True, **attrs):
    channels = image[1 if attrs.get("data_format", "").startswith("NC") else -1] if channels is None else channels
    training = attrs.get("is_training", True)
    statistics = [arr(channels, seed=3), pos(channels, seed=4)] if running else [empty(0), empty(0)]
    for version in versions:
        inputs = [arr(*image), pos(channels, seed=1), arr(channels, seed=2), *statistics]
        # What is kept for the gradient is only there if there is something to keep; the third version keeps nothing more.
        c.op("FusedBatchNorm" + version, inputs, name, types=types, fetch=5 if training and image[0] else 3, **attrs)
        if "exponential_avg_factor" in attrs:
            continue
        inputs = [arr(*image, seed=5), arr(*image), pos(channels, seed=1), arr(channels, seed=3), pos(channels, seed=4)]
        if version == "V3":
            inputs.append(empty(0) if training else pos(channels, seed=4))
        c.op("FusedBatchNormGrad" + version, inputs, name, types=types, fetch=3, **attrs)


def cases(c):
    c.accuracy("rounding")
    every = {"versions": ("V2", "V3"), "types": FLOATS}
    for training in (True, False):
        name = "training" if training else "inference"
        normalize(c, name, (4, 3, 2, 5), is_training=training, running=not training)
        normalize(c, f"{name}/types", (4, 3, 2, 5), is_training=training, running=not training, **every)
        normalize(c, f"{name}/epsilon", (4, 3, 2, 5), is_training=training, running=not training, epsilon=0.1)
        normalize(
            c, f"{name}/many_channels", (2, 3, 3, 37), versions=("V3",), is_training=training, running=not training
        )
        normalize(
            c, f"{name}/channels_first", (2, 3, 4, 5), is_training=training, running=not training, data_format="NCHW"
        )
        normalize(
            c,
            f"{name}/volume",
            (2, 3, 2, 4, 5),
            versions=("V3",),
            is_training=training,
            running=not training,
            data_format="NDHWC",
        )
        normalize(
            c,
            f"{name}/volume_first",
            (2, 5, 3, 2, 4),
            versions=("V3",),
            is_training=training,
            running=not training,
            data_format="NCDHW",
        )
        normalize(c, f"{name}/one_value", (1, 1, 1, 3), is_training=training, running=not training)
        normalize(c, f"{name}/one_channel", (2, 3, 2, 1), is_training=training, running=not training)
        normalize(c, f"{name}/no_images", (0, 3, 2, 5), is_training=training, running=not training)
        normalize(c, f"{name}/matrix", (4, 5), is_training=training, running=not training)
        normalize(c, f"{name}/channels_mismatch", (4, 3, 2, 5), channels=4, is_training=training, running=not training)
    normalize(c, "training/running", (4, 3, 2, 5), running=True)
    normalize(c, "inference/not_running", (4, 3, 2, 5), is_training=False, running=False)
    normalize(c, "training/average", (4, 3, 2, 5), exponential_avg_factor=0.3)
    normalize(c, "training/average_first", (2, 5, 3, 4), exponential_avg_factor=0.3, data_format="NCHW")
    normalize(c, "training/average_types", (4, 3, 2, 5), exponential_avg_factor=0.3, **every)
    normalize(c, "training/average_without", (4, 3, 2, 5), running=False, exponential_avg_factor=0.3)
    normalize(c, "training/no_average", (4, 3, 2, 5), running=True, exponential_avg_factor=0.0)
    # In another order, a step leaves the range of numbers.
    large = [arr(2, 2, 2, 6), lit(np.multiply.outer(arr(2, 2, 2)("float"), [1e20, 1e25, 1.0, 1e-20, np.inf, 3e38]))]
    for training in (True, False):
        rest = [
            lit([1.0, 2.0, 1e20, 0.5, 1.0, 1e-10]),
            lit([1e20, 1.0, 0.5, 1.0, 3.0, 1e38]),
            lit([3e38, 1e38, 3e38, 1e-20, np.inf, 1e38]),
        ]
        c.op(
            "FusedBatchNormGradV3",
            [*large, *rest, empty(0)],
            f"large_{str(training).lower()}",
            fetch=3,
            T="float",
            is_training=training,
        )
    few = {"T": "float"}
    c.op("FusedBatchNormV3", [arr(2, 3, 3, 2), pos(2), arr(2), empty(0), empty(0)], "third_output", fetch=6, **few)
    c.op(
        "FusedBatchNormGradV3",
        [arr(2, 3, 3, 2), arr(2, 3, 3, 2), pos(2), arr(2), pos(2), empty(0)],
        "unused_outputs",
        fetch=5,
        **few,
    )
    c.op(
        "FusedBatchNormGrad",
        [arr(2, 3, 3, 2), arr(2, 3, 3, 2), pos(2), arr(2), pos(2)],
        "unused_outputs",
        fetch=5,
        **few,
    )
    c.op(
        "FusedBatchNormGradV3",
        [arr(2, 3, 3, 2), arr(2, 3, 2, 2), pos(2), arr(2), pos(2), empty(0)],
        "gradient_shape",
        fetch=3,
        **few,
    )
    c.op(
        "FusedBatchNormGradV3",
        [arr(2, 3, 3, 2), arr(2, 3, 3, 2), pos(2, 1), arr(2), pos(2), empty(0)],
        "scale_rank",
        fetch=3,
        **few,
    )
    c.op(
        "FusedBatchNormGradV3",
        [arr(2, 3, 3, 2), arr(2, 3, 3, 2), pos(2), arr(3), pos(2), empty(0)],
        "mean_shape",
        fetch=3,
        **few,
    )
    c.op("FusedBatchNormV3", [arr(2, 3, 3, 2), pos(2, 1), arr(2), empty(0), empty(0)], "scale_rank", fetch=5, **few)
    c.op("FusedBatchNormV3", [arr(2, 3, 3, 2), pos(2), arr(3), empty(0), empty(0)], "offset_shape", fetch=5, **few)
    c.op(
        "FusedBatchNormV3",
        [arr(2, 3, 3, 2), pos(2), arr(2), arr(3), pos(2)],
        "mean_shape",
        fetch=5,
        is_training=False,
        **few,
    )
    c.op(
        "FusedBatchNormV3",
        [arr(2, 3, 3, 2), pos(2), arr(2), arr(2), pos(1, 2)],
        "variance_rank",
        fetch=5,
        is_training=False,
        **few,
    )
    c.op(
        "FusedBatchNormV3",
        [arr(2, 3, 3, 2), pos(2), arr(2), arr(2), pos(2)],
        "half_statistics",
        fetch=5,
        U="bfloat16",
        T="bfloat16",
    )
