"""The orders of an image's dimensions, and the place of a device in a list."""

from values import *

import numpy as np


def cases(c):
    for source, target in [("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NHWC", "HWNC"), ("NDHWC", "NCDHW")]:
        attrs = {"src_format": source, "dst_format": target}
        name = f"{source}_{target}"
        count = len(source)
        c.op("DataFormatDimMap", [lit(list(range(-count, count)))], name, **attrs)
        for rows in (count, count - 2):
            c.op("DataFormatVecPermute", [iota(rows, start=1)], f"{name}_{rows}", **attrs)
            c.op("DataFormatVecPermute", [iota(rows, 2)], f"{name}_{rows}x2", **attrs)
    c.op("DataFormatDimMap", [lit(1)], "scalar", T="int32")
    c.op("DataFormatDimMap", [np.int32([2147483646, -2147483648, 7, -9])], "far", T="int32")
    c.op("DataFormatDimMap", [lit([1])], "letters", T="int32", src_format="NHWC", dst_format="NCHH")
    c.op("DataFormatDimMap", [lit([1])], "length", T="int32", src_format="NHW", dst_format="NWH")
    c.op("DataFormatVecPermute", [iota(3)], "size", T="int32")
    c.op("DataFormatVecPermute", [iota(4, 3)], "columns", T="int32")
    c.op("DataFormatVecPermute", [iota(4, 2, 2)], "rank", T="int32")
    for names in (["CPU", "GPU"], ["GPU", "CPU"], ["GPU"], []):
        c.op("DeviceIndex", [], "_".join(names) or "none", device_names=names)
