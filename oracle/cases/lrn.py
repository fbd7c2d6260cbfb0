"""Local response normalization and its gradient."""

from values import *

import numpy as np


def cases(c):
    c.accuracy("rounding")
    for dtype in ("half", "float"):
        c.op("LRN", [arr(2, 3, 2, 7)], T=dtype)
        c.op("LRN", [arr(2, 3, 2, 7)], "attributes", T=dtype, depth_radius=2, bias=2.0, alpha=0.5, beta=0.75)
        c.op("LRNGrad", [arr(2, 3, 2, 7), arr(2, 3, 2, 7, seed=1), arr(2, 3, 2, 7, seed=2)], T=dtype)
        c.op(
            "LRNGrad",
            [arr(2, 3, 2, 7), arr(2, 3, 2, 7, seed=1), arr(2, 3, 2, 7, seed=2)],
            "attributes",
            T=dtype,
            depth_radius=2,
            bias=2.0,
            alpha=0.5,
            beta=0.75,
        )
        for i, (alpha, beta) in enumerate(((1e-3, 0.75), (0.3, 0.7), (1.0, 1.0), (0.5, 0.5))):
            inputs = [arr(1, 2, 3, 9, seed=3 * i + k) for k in range(3)]
            c.op(
                "LRNGrad",
                inputs,
                f"rounding_{i}",
                T=dtype,
                accuracy="exact" if dtype == "half" else "rounding",
                depth_radius=i + 1,
                bias=1.0,
                alpha=alpha,
                beta=beta,
            )
        no_numbers = lit(np.array([1.0, np.nan, 2.0, np.inf, 0.5, 1.0, 3.0]).reshape(1, 1, 1, 7))
        c.op(
            "LRNGrad",
            [lit(np.array([0.0, -0.0, 1.0, 0.0, 0.0, 0.0, 2.0]).reshape(1, 1, 1, 7)), no_numbers, no_numbers],
            "no_gradient",
            T=dtype,
            depth_radius=1,
        )
    few = {"T": "float"}
    c.op("LRN", [arr(2, 3, 2, 7)], "whole_depth", depth_radius=20, **few)
    c.op("LRN", [arr(2, 3, 2, 7)], "radius_zero", depth_radius=0, **few)
    c.op("LRN", [arr(2, 3, 2, 7)], "beta_one", beta=1.0, **few)
    spoiled = np.full((2, 1, 2, 7), 0.5)
    spoiled[0, 0, 0, 1], spoiled[0, 0, 1, 6], spoiled[1, 0, 0, 3] = np.nan, np.inf, 3e38
    for beta in (0.5, 0.75, 1.0):
        c.op("LRN", [lit(spoiled)], f"infinite_{beta}", depth_radius=1, beta=beta, **few)
    for beta in (0.0, 0.5, 1.0, 2.0, -1.0):
        c.op("LRN", [lit(np.full((1, 1, 1, 3), 2.0))], f"negative_{beta}", bias=0.5, alpha=-1.0, beta=beta, **few)
        c.op(
            "LRNGrad", [lit(np.full((1, 1, 1, 3), 2.0))] * 3, f"negative_{beta}", bias=0.5, alpha=-1.0, beta=beta, **few
        )
    c.op("LRN", [lit(np.full((1, 1, 1, 2), 1.0))], "zero", bias=1.0, alpha=-0.5, beta=2.0, **few)
    c.op("LRN", [arr(2, 3, 2, 7)], "negative_radius", depth_radius=-1, **few)
    c.op("LRN", [arr(3, 2, 7)], "rank", **few)
    c.op("LRN", [empty(0, 3, 2, 7)], "empty", **few)
    c.op("LRNGrad", [arr(2, 3, 2, 7), arr(2, 3, 2, 6), arr(2, 3, 2, 7)], "shape", **few)
    c.op("LRNGrad", [arr(3, 2, 7), arr(3, 2, 7), arr(3, 2, 7)], "rank", **few)
    c.op("LRNGrad", [empty(0, 3, 2, 7), empty(0, 3, 2, 7), empty(0, 3, 2, 7)], "empty", **few)
