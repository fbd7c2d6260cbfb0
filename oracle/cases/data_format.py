"""Dimensions and sizes, renamed from one order of an image's dimensions to another."""

from values import *

import numpy as np


def cases(c):
    op = "DataFormatDimMap"
    c.op(op, [lit([0, 1, 2, 3, -1, -2, -3, -4])])
    c.op(op, [lit([[0, 1], [2, 3]])], "back", types=["int32"], src_format="NCHW", dst_format="NHWC")
    c.op(op, [lit([0, 1, 2, 3, 4, -5])], "volume", types=["int32"], src_format="NDHWC", dst_format="NCDHW")
    c.op(op, [lit([4, -5, 9])], "outside", types=["int32"])
    c.op(op, [empty(0)], "empty", types=["int32"])
    c.op(op, [lit([0])], "short", types=["int32"], src_format="NHW", dst_format="NCHW")
    c.op(op, [lit([0])], "other", types=["int32"], src_format="NHWC", dst_format="NCHX")
    op = "DataFormatVecPermute"
    c.op(op, [lit([7, 8, 9, 10])])
    c.op(op, [lit([[1, 2], [3, 4], [5, 6], [7, 8]])], "pairs")
    c.op(op, [lit([7, 8])], "spatial", types=["int32"], src_format="NWHC")
    c.op(op, [lit([[1, 2], [3, 4], [5, 6]])], "volume", types=["int32"], src_format="NDHWC", dst_format="NCWHD")
    c.op(op, [lit([7, 8, 9, 10])], "any", types=["int32"], src_format="HWNC", dst_format="NHWC")
    c.op(op, [lit([7, 8, 9])], "size", types=["int32"])
    c.op(op, [lit([[1, 2, 3]] * 4)], "width", types=["int32"])
    c.op(op, [np.int32(3)], "scalar")
