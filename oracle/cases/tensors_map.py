"""Maps that keep sparse tensors between steps."""

from values import *

import numpy as np


def cases(c):
    for dtype in ("float", "string", "int64"):
        p = c.program(f"add_and_take/{dtype}")
        parts = [p.const([[0, 1], [2, 0], [2, 3]], "int64"), p.const(lit([1, 2, 3]), dtype), p.const([4, 4], "int64")]
        add = p.node("AddManySparseToTensorsMap", parts, T=dtype, shared_name="map")
        one = [p.const([[1]], "int64"), p.const(lit([7]), dtype), p.const([6], "int64")]
        single = p.node("AddSparseToTensorsMap", one, T=dtype, shared_name="map")
        handles = p.placeholder("int64", "handles")
        take = p.node("TakeManySparseFromTensorsMap", [handles], dtype=dtype, shared_name="map")
        taken = [f"{take}:{i}" for i in range(3)]
        p.step(fetch=[add])
        p.step(fetch=[single])
        p.step(fetch=taken, feed={handles: np.array([4, 0, 2], np.int64)})
        p.step(
            fetch=taken, feed={handles: np.array([4], np.int64)}, message="Unable to find SparseTensor: 4 in map: map"
        )
        p.step(fetch=taken, feed={handles: np.array([3, 1], np.int64)})
        p.step(fetch=taken, feed={handles: np.array([], np.int64)})
    p = c.program("by_node_name")
    one = [p.const([[1]], "int64"), p.const(lit([7]), "float"), p.const([6], "int64")]
    add = p.node("AddSparseToTensorsMap", one, name="add", T="float")
    handles = p.placeholder("int64", "handles")
    take = p.node("TakeManySparseFromTensorsMap", [handles], dtype="float", shared_name="add")
    wrong = p.node("TakeManySparseFromTensorsMap", [handles], dtype="int32", shared_name="add")
    p.step(fetch=[add])
    p.step(fetch=[take], feed={handles: np.array([0], np.int64)})
    p.step(fetch=[add])
    p.step(fetch=[wrong], feed={handles: np.array([1], np.int64)})
    p = c.program("ranks_differ")
    handles = p.placeholder("int64", "handles")
    for indices, shape in ([[[1]], [6]], [[[1, 1]], [6, 6]]):
        inputs = [p.const(indices, "int64"), p.const(lit([7]), "float"), p.const(shape, "int64")]
        p.step(fetch=[p.node("AddSparseToTensorsMap", inputs, T="float", shared_name="map")])
    take = p.node("TakeManySparseFromTensorsMap", [handles], dtype="float", shared_name="map")
    p.step(fetch=[take], feed={handles: np.array([0, 1], np.int64)})
    sparse = [[[1, 0], [0, 1]], lit([1, 2]), [2, 2]]
    c.op("AddManySparseToTensorsMap", sparse, "unsorted", T="float")
    c.op("AddManySparseToTensorsMap", [[[0]], lit([1]), [2]], "rank_1", T="float")
    c.op("AddSparseToTensorsMap", [[[0]], lit([1, 2]), [2]], "counts_differ", T="float")
