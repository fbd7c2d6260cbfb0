"""Sums and zeros of variants that another task made: lists, ragged tensors, optionals and maps arrive as messages."""

from report import show, v1

import tensorflow as tf

raw = tf.raw_ops


def run(cluster):
    with tf.Graph().as_default(), v1.Session(cluster.target()) as session:
        for name, fetch in sums_and_zeros().items():
            show(name, session.run(fetch).tolist())


def sums_and_zeros():
    scalar = tf.constant([], tf.int32)
    with tf.device("/job:ps/task:0"):
        x = v1.placeholder_with_default([1.0, 2.0], [2])
        plain = raw.TensorListFromTensor(tensor=x, element_shape=scalar)
        nested = raw.TensorListPushBack(
            input_handle=raw.EmptyTensorList(element_dtype=tf.variant, element_shape=scalar, max_num_elements=-1),
            tensor=plain,
        )
        splits = tf.constant([0, 1, 2], tf.int64)
        ragged = raw.RaggedTensorToVariant(rt_nested_splits=[splits], rt_dense_values=x, batched_input=False)
        optional = raw.OptionalFromValue(components=[x])
        table = raw.TensorMapInsert(input_handle=raw.EmptyTensorMap(), key=tf.constant(1), value=x)

    def stacked(handle):
        return raw.TensorListStack(input_handle=handle, element_shape=scalar, element_dtype=tf.float32)

    def first(handle):
        return raw.TensorListGetItem(input_handle=handle, index=0, element_shape=scalar, element_dtype=tf.variant)

    def values(handle):
        return raw.RaggedTensorFromVariant(
            encoded_ragged=handle, input_ragged_rank=1, output_ragged_rank=1, Tvalues=tf.float32
        ).output_dense_values

    def component(handle):
        return raw.OptionalGetValue(optional=handle, output_types=[tf.float32], output_shapes=[[2]])[0]

    def entry(handle):
        return raw.TensorMapLookup(input_handle=handle, key=tf.constant(1), value_dtype=tf.float32)

    fetches = {}
    with tf.device("/job:worker/task:0"):
        for name, variant, open_up in [
            ("list", plain, stacked),
            ("list of lists", nested, lambda handle: stacked(first(handle))),
            ("ragged tensor", ragged, values),
            ("optional", optional, component),
            ("map", table, entry),
        ]:
            fetches[f"sum: {name}"] = open_up(raw.AddN(inputs=[variant, variant]))
            if name != "map":
                fetches[f"zeros: {name}"] = open_up(tf.zeros_like(variant))
        fetches["zeros: map"] = raw.TensorMapSize(input_handle=tf.zeros_like(table))
    return fetches
