"""Tensor arrays and tensor lists."""

from report import session, show, show_failure, v1

import tensorflow as tf


def run(target):
    for enable, kind in [(v1.disable_control_flow_v2, "array"), (v1.enable_control_flow_v2, "list")]:
        enable()
        with tf.Graph().as_default():
            both(target, kind)
    v1.disable_control_flow_v2()


def both(target, kind):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False).unstack(x)

    def body(i, out):
        return i + 1, out.write(i, array.read(i) * tf.cast(i, tf.float32))

    _, filled = tf.while_loop(lambda i, _: i < 3, body, [0, tf.TensorArray(tf.float32, 3)])
    stacked = filled.stack()
    pieces = tf.TensorArray(tf.int32, 0, dynamic_size=True, infer_shape=False)
    pieces = pieces.write(0, [1]).write(1, [2, 3])
    mapped = tf.map_fn(tf.reduce_sum, x)
    scanned = tf.scan(lambda a, row: a + row, x)
    folded = tf.foldl(lambda a, row: a * 2.0 + row, x)
    slope = tf.gradients(tf.reduce_sum(stacked * x), x)
    with session(target) as sess:
        show(f"{kind} filled in a loop", sess.run(stacked))
        show("concatenated", sess.run([pieces.concat(), pieces.size()]))
        show("higher-order", sess.run([mapped, scanned, folded]))
        show("gradient", sess.run(slope))
        show_failure("out of range", lambda: sess.run(array.read(7)))
    handle = tf.raw_ops.EmptyTensorList(element_shape=[2], max_num_elements=-1, element_dtype=tf.float32)
    handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=[1.0, 2.0])
    handle = tf.raw_ops.TensorListPushBack(input_handle=handle, tensor=[3.0, 4.0])
    popped = tf.raw_ops.TensorListPopBack(input_handle=handle, element_shape=[2], element_dtype=tf.float32)
    length = tf.raw_ops.TensorListLength(input_handle=handle)
    whole = tf.raw_ops.TensorListStack(input_handle=handle, element_shape=[2], element_dtype=tf.float32)
    with session(target) as sess:
        show("list", sess.run([popped.tensor, length, whole]))
