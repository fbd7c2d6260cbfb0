"""Reductions over axes, arg-reductions and cumulative ops."""

from values import *

import ml_dtypes
import numpy as np

REDUCTIONS = ["Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"]
# Sums of few small values come out the same in any order only for these.
EXACT = {"Max", "Min"}


def axes(c, op, template, **kwargs):
    every = {"types": None, "few": "types" not in kwargs} | kwargs
    none = np.zeros(0, np.int64)
    c.op(op, [template(2, 3), [0]], "axis_0", **every)
    c.op(op, [template(2, 3), [1]], "axis_1", **every)
    c.op(op, [template(2, 3), 1], "axis_scalar", **every)
    c.op(op, [template(2, 3), [-1]], "axis_negative", **every)
    c.op(op, [template(2, 3), [0, 1]], "all", **every)
    c.op(op, [template(2, 3), [0, 1]], "all_keep", keep_dims=True, **every)
    c.op(op, [template(2, 3), [1]], "keep", keep_dims=True, **every)
    c.op(op, [template(2, 3), none], "none", **every)
    c.op(op, [template(), none], "scalar", **every)
    c.op(op, [template(2, 3, 2), [1]], "middle", **every)
    c.op(op, [template(2, 3, 2), [0, 2]], "outer", **every)
    c.op(op, [template(2, 2, 1, 3, 2), [0, 2, 4]], "rank_5", **every)
    c.op(op, [template(2, 1, 3), [1]], "one_dim", **every)
    c.op(op, [empty(0, 3), [0]], "empty_axis", **every)
    c.op(op, [empty(0, 3), [1]], "empty_result", **every)
    c.op(op, [empty(0), [0]], "empty_to_scalar", **every)
    c.op(op, [template(2, 3), [2]], "out_of_range", **every)
    c.op(op, [template(2, 3), [-3]], "out_of_range_below", **every)
    c.op(op, [template(2, 3), [0, 0]], "repeated_axis", **every)
    c.op(op, [template(2, 3), [[0]]], "axis_matrix", **every)


def ends_of(dtype):
    """Pairs of the ends of a type's range, infinities and NaN."""
    most = float(ml_dtypes.finfo(NUMPY[dtype]).max)
    ends = [np.nan, -np.inf, -most, most, np.inf]
    return [[first, second] for first in ends for second in ends]


def cases(c):
    for op in REDUCTIONS:
        accuracy = "exact" if op in EXACT else "rounding"
        c.op(op, [arr(2, 3), [1]], accuracy=accuracy)
        axes(c, op, arr, accuracy=accuracy)
        c.op(op, [specials(), [0]], "specials", accuracy=accuracy, types=REAL)
        c.op(op, [lit([1.0, float("nan"), 2.0]), [0]], "nan", accuracy=accuracy, types=FLOATS)
        c.op(op, [lit([float("nan"), float("nan")]), [0]], "all_nan", accuracy=accuracy, types=FLOATS)
        c.op(op, [lit([-float("inf"), -5.0]), [0]], "minus_inf", accuracy=accuracy, types=FLOATS)
        # Halves are summed in float (but squared as halves, which overflows), small integers wrap.
        c.op(op, [big(40), [0]], "long", accuracy=accuracy, types=REAL)
    for op in ("Any", "All"):
        c.op(op, [[[True, False, True], [True, True, False]], [1]], Tidx=("int32", "int64"))
        axes(c, op, lambda *s: lit(np.arange(int(np.prod(s))).reshape(s) % 3 != 0))

    for op in ("ArgMax", "ArgMin"):
        # Stock reads a 16-bit axis as if it had 32 bits.
        axis = {"Tidx": ("int32", "int64")}
        c.op(op, [arr(2, 3), 1], output_type=("int32", "int64"), **axis)
        c.op(op, [arr(2, 3), 0], "axis_0", few=True, Tidx="int32")
        c.op(op, [arr(2, 3), -1], "axis_negative", few=True, Tidx="int32")
        c.op(op, [arr(2, 3, 2), 1], "middle", few=True, Tidx="int32")
        c.op(op, [arr(1, 2, 2, 1, 3), 4], "rank_5", few=True, Tidx="int32")
        c.op(op, [lit([1, 3, 3, 0, 0]), 0], "ties", few=True, Tidx="int32")
        c.op(op, [lit([float("nan"), 1.0, 2.0]), 0], "nan_first", types=FLOATS, Tidx="int32")
        c.op(op, [lit([1.0, float("nan"), 2.0]), 0], "nan", types=FLOATS, Tidx="int32")
        c.op(op, [lit([-float("inf"), -float("inf")]), 0], "minus_inf", types=FLOATS, Tidx="int32")
        # The search begins with the ends of the finite range.
        ends = Template(lambda dtype: np.array(ends_of(dtype), NUMPY[dtype]))
        for axis in (0, 1):
            c.op(op, [ends, axis], f"ends_{axis}", types=FLOATS, Tidx="int32")
        c.op(op, [empty(2, 0), 0], "empty_result", few=True, Tidx="int32")
        c.op(op, [empty(2, 0), 1], "empty_axis", few=True, Tidx="int32")
        c.op(op, [arr(2), 1], "out_of_range", few=True, Tidx="int32")
        c.op(op, [arr(2), [0]], "axis_vector", few=True, Tidx="int32")
        c.op(op, [arr(), 0], "scalar", few=True, Tidx="int32")

    for op in ("Cumsum", "Cumprod", "CumulativeLogsumexp"):
        for exclusive in (False, True):
            for reverse in (False, True):
                label = "_".join(["exclusive"] * exclusive + ["reverse"] * reverse) or "plain"
                c.op(
                    op,
                    [arr(2, 3), 1],
                    label,
                    accuracy="rounding",
                    exclusive=exclusive,
                    reverse=reverse,
                    few=exclusive or reverse,
                )
        for row in ([np.nan, 0, np.nan], [1, np.nan, np.nan, 2], [np.inf, 0, np.inf], [-np.inf, -np.inf, 0]):
            c.op(op, [lit(row), 0], "_".join(map(str, row)), types=("half", "float", "double"), accuracy="rounding")
        c.op(op, [arr(2, 3), 0], "axis_0", few=True, accuracy="rounding")
        c.op(op, [arr(2, 3), -2], "axis_negative", few=True, accuracy="rounding")
        c.op(op, [arr(2, 2, 1, 2, 1), 1], "rank_5", few=True, accuracy="rounding")
        c.op(op, [empty(0, 2), 0], "empty", few=True)
        c.op(op, [arr(2), 1], "out_of_range", few=True)
        c.op(op, [arr(), 0], "scalar", few=True)
        c.op(op, [arr(2), [0]], "axis_vector", few=True)
