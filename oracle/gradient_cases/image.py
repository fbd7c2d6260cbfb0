"""Resizing, cropping, colors and projections of images."""

from gradients import any_, fixed

import numpy as np
import tensorflow as tf

raw = tf.raw_ops


def cases(c):
    for alignment, attrs in {
        "plain": {},
        "corners": {"align_corners": True},
        "centers": {"half_pixel_centers": True},
    }.items():
        for op in ("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"):
            resize = getattr(raw, op)
            c.case(
                f"{op}/{alignment}",
                lambda x, resize=resize, attrs=attrs: resize(images=x, size=[5, 3], **attrs),
                any_(2, 3, 4, 2),
            )
    for kernel in ("lanczos3", "triangle"):
        c.case(
            f"ScaleAndTranslate/{kernel}",
            lambda x, kernel=kernel: raw.ScaleAndTranslate(
                images=x, size=[5, 3], scale=[1.2, 0.7], translation=[0.3, -0.2], kernel_type=kernel
            ),
            any_(1, 4, 5, 2),
            dtypes=("float",),
        )
    boxes = fixed([[0.1, 0.2, 0.8, 0.9], [0.0, 0.3, 0.7, 0.6]])
    for size in (1, 3):
        crop = lambda x, boxes, size=size: raw.CropAndResize(
            image=x, boxes=boxes, box_ind=[0, 1], crop_size=[size, size + 1]
        )
        c.case(f"CropAndResize/{size}", crop, any_(2, 4, 5, 2), boxes, dtypes=("float",))
    colors = fixed(np.random.RandomState(1).permutation(24).reshape(2, 4, 3) / 32 + 0.1)
    c.case("RGBToHSV", lambda x: raw.RGBToHSV(images=x), colors)
    turned = [[0.8, -0.6, 1.2, 0.6, 0.8, -0.7, 0.01, -0.02]]
    c.case(
        "ImageProjectiveTransformV2",
        lambda x: raw.ImageProjectiveTransformV2(
            images=x, transforms=turned, output_shape=[4, 4], interpolation="BILINEAR"
        ),
        any_(1, 4, 5, 1),
        dtypes=("float",),
        unsmooth=True,
    )
    c.case(
        "ImageProjectiveTransformV3",
        lambda x: raw.ImageProjectiveTransformV3(
            images=x,
            transforms=turned,
            output_shape=[4, 4],
            interpolation="BILINEAR",
            fill_mode="REFLECT",
            fill_value=0.0,
        ),
        any_(1, 4, 5, 1),
        dtypes=("float",),
        unsmooth=True,
    )
