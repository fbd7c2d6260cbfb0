"""Tensor arrays, tensor lists, variables and random values."""

from gradients import any_, positive

import tensorflow as tf
from tensorflow.python.ops import map_ops  # noqa: F401, registers gradients

raw = tf.raw_ops
v1 = tf.compat.v1


def cases(c):
    arrays(c)
    maps(c)
    lists(c)
    variables(c)
    randoms(c)


def array(x, size, **options):
    return tf.TensorArray(x.dtype, size=size, **options)


def arrays(c):
    def write_read(x):
        kept = array(x, 3, clear_after_read=False).write(0, x * 2).write(2, x * x).write(1, x)
        return kept.read(0) * kept.read(2) + kept.read(2)

    c.case("TensorArray/write_read", write_read, any_(2, 3))
    c.case("TensorArray/stack", lambda x, y: array(x, 2).write(0, x).write(1, y).stack(), any_(2), any_(2))
    c.case("TensorArray/gather", lambda x: array(x, 3).unstack(x).gather([2, 0]), any_(3, 2))
    c.case("TensorArray/scatter", lambda x: array(x, 4).scatter([3, 0, 1], x).read(3), any_(3, 2))
    c.case(
        "TensorArray/concat",
        lambda x, y: array(x, 2, infer_shape=False).write(0, x).write(1, y).concat(),
        any_(2, 2),
        any_(1, 2),
    )
    c.case("TensorArray/split", lambda x: array(x, 2, infer_shape=False).split(x, [1, 2]).read(1), any_(3, 2))


def lists(c):
    def push_pop(x, y):
        made = raw.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=x.dtype)
        made = raw.TensorListPushBack(input_handle=made, tensor=x)
        made = raw.TensorListPushBack(input_handle=made, tensor=y)
        made, last = raw.TensorListPopBack(input_handle=made, element_shape=[2], element_dtype=x.dtype)
        _, first = raw.TensorListPopBack(input_handle=made, element_shape=[2], element_dtype=x.dtype)
        return first * last

    c.case("TensorList/push_pop", push_pop, any_(2), any_(2))

    def of(x):
        return raw.TensorListFromTensor(tensor=x, element_shape=[2])

    def stacked(x, made):
        return raw.TensorListStack(input_handle=made, element_shape=[2], element_dtype=x.dtype, num_elements=-1)

    def item(x, made, index):
        return raw.TensorListGetItem(input_handle=made, index=index, element_shape=[2], element_dtype=x.dtype)

    c.case("TensorList/stack", lambda x: stacked(x, of(x)) * 2, any_(3, 2))
    c.case("TensorList/get", lambda x: item(x, of(x), 1) * item(x, of(x), 2), any_(3, 2))
    c.case(
        "TensorList/set",
        lambda x, y: stacked(x, raw.TensorListSetItem(input_handle=of(x), index=1, item=y)),
        any_(3, 2),
        any_(2),
    )
    grown = lambda x, y: stacked(
        x, raw.TensorListSetItem(input_handle=of(x), index=3, item=y, resize_if_index_out_of_bounds=True)
    )
    c.case("TensorList/set_and_grow", grown, any_(3, 2), any_(2))
    c.case("TensorList/resize", lambda x: stacked(x, raw.TensorListResize(input_handle=of(x), size=2)), any_(3, 2))
    gather = lambda x: raw.TensorListGather(
        input_handle=of(x), indices=[2, 0], element_shape=[2], element_dtype=x.dtype
    )
    c.case("TensorList/gather", gather, any_(3, 2))
    scatter = lambda x: stacked(x, raw.TensorListScatter(tensor=x, indices=[1, 0, 2], element_shape=[2]))
    c.case("TensorList/scatter", scatter, any_(3, 2))
    scatter_v2 = lambda x: item(
        x, raw.TensorListScatterV2(tensor=x, indices=[1, 0], element_shape=[2], num_elements=4), 1
    )
    c.case("TensorList/scatter_v2", scatter_v2, any_(2, 2))
    into = lambda x, y: stacked(x, raw.TensorListScatterIntoExistingList(input_handle=of(x), tensor=y, indices=[2, 0]))
    c.case("TensorList/scatter_into", into, any_(3, 2), any_(2, 2))

    def split(x):
        return raw.TensorListSplit(tensor=x, element_shape=[-1, 2], lengths=tf.constant([1, 2], tf.int64))

    part = lambda x: raw.TensorListGetItem(input_handle=split(x), index=1, element_shape=[-1, 2], element_dtype=x.dtype)
    c.case("TensorList/split", part, any_(3, 2))
    concat = lambda x: raw.TensorListConcatV2(
        input_handle=split(x), element_shape=[-1, 2], leading_dims=tf.constant([1, 2], tf.int64), element_dtype=x.dtype
    )[0]
    c.case("TensorList/concat_v2", concat, any_(3, 2))
    c.case(
        "TensorList/concat",
        lambda x: raw.TensorListConcat(input_handle=split(x), element_dtype=x.dtype, element_shape=[None, 2])[0],
        any_(3, 2),
    )


def variables(c):
    def variable(values, dtype, name="w"):
        handle = raw.VarHandleOp(dtype=dtype, shape=tf.constant(values).shape, shared_name=name, name=name)
        init = raw.AssignVariableOp(resource=handle, value=tf.constant(values, dtype), name=f"{name}/init")
        v1.add_to_collection("init", init)
        return handle

    rows = [[1.0, -2.0], [0.5, 3.0], [2.0, 1.5]]

    def read(x):
        handle = variable(rows, x.dtype)
        return raw.ReadVariableOp(resource=handle, dtype=x.dtype) * x, [handle]

    def gather(x):
        handle = variable(rows, x.dtype)
        return raw.ResourceGather(resource=handle, indices=[2, 0, 2], dtype=x.dtype) * x, [handle]

    def gather_matrix(x):
        handle = variable(rows, x.dtype)
        return raw.ResourceGather(resource=handle, indices=[[2], [0]], dtype=x.dtype) * x, [handle]

    def gather_twice(x):
        handle = variable(rows, x.dtype)
        both = [raw.ResourceGather(resource=handle, indices=i, dtype=x.dtype) * x for i in ([0, 1], [1, 1])]
        return both, [handle]

    def gather_nd(x):
        handle = variable(rows, x.dtype)
        return raw.ResourceGatherNd(resource=handle, indices=[[2, 0], [0, 1]], dtype=x.dtype) * x, [handle]

    def gather_nd_rows(x):
        handle = variable(rows, x.dtype)
        return raw.ResourceGatherNd(resource=handle, indices=[[2], [0]], dtype=x.dtype) * x, [handle]

    c.case("ReadVariableOp", read, any_(3, 2))
    c.case("ResourceGather", gather, any_(3, 2))
    c.case("ResourceGather/matrix", gather_matrix, any_(2, 1, 2))
    c.case("ResourceGather/twice", gather_twice, any_(2, 2))
    c.case("ResourceGatherNd", gather_nd, any_(2))
    c.case("ResourceGatherNd/rows", gather_nd_rows, any_(2, 2))


def randoms(c):
    c.case("RandomStandardNormal", lambda x: x + 0 * tf.random.normal([3], dtype=x.dtype, seed=1), any_(3))
    stateless = lambda alpha: raw.StatelessRandomGammaV2(shape=[4, 2], seed=[1, 2], alpha=alpha)
    c.case("StatelessRandomGammaV2", stateless, positive(2), unsmooth=True)
    gamma = lambda alpha: raw.RandomGamma(shape=[4], alpha=alpha, seed=3, seed2=4)
    c.case("RandomGamma", gamma, positive(2), unsmooth=True)
    truncated = lambda mean, stddev: raw.StatelessParameterizedTruncatedNormal(
        shape=[3, 2], seed=[1, 2], means=mean, stddevs=stddev, minvals=tf.constant(-1.0, mean.dtype), maxvals=mean + 2.5
    )
    c.case("StatelessParameterizedTruncatedNormal", truncated, any_(2), positive(1), unsmooth=True)
    c.case("Print", lambda x: v1.Print(x, [x * 2], "value"), any_(3), dtypes=("float",))


def maps(c):
    def lookup(x, y):
        first = raw.TensorMapInsert(input_handle=raw.EmptyTensorMap(), key=1, value=x)
        both = raw.TensorMapInsert(input_handle=first, key=2, value=y)
        found = raw.TensorMapLookup(input_handle=both, key=1, value_dtype=x.dtype)
        return found * raw.TensorMapLookup(input_handle=both, key=2, value_dtype=x.dtype) + found

    c.case("TensorMap/lookup", lookup, any_(2), any_(2))

    def replaced(x, y):
        first = raw.TensorMapInsert(input_handle=raw.EmptyTensorMap(), key=1, value=x)
        second = raw.TensorMapInsert(input_handle=first, key=1, value=y)
        return raw.TensorMapLookup(input_handle=second, key=1, value_dtype=x.dtype) * 2.0

    c.case("TensorMap/replaced", replaced, any_(2), any_(2))

    def erased(x, y):
        both = raw.TensorMapInsert(input_handle=raw.EmptyTensorMap(), key=1, value=x)
        both = raw.TensorMapInsert(input_handle=both, key=2, value=y)
        rest = raw.TensorMapErase(input_handle=both, key=2, value_dtype=y.dtype)
        return raw.TensorMapLookup(input_handle=rest, key=1, value_dtype=x.dtype) * y

    c.case("TensorMap/erased", erased, any_(2), any_(2))
