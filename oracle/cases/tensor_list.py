"""TensorList: lists as values."""

from values import *

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
raw_ops = tf.raw_ops


def reserve(shape, n, dtype=tf.float32):
    return raw_ops.TensorListReserve(element_shape=np.int32(shape), num_elements=n, element_dtype=dtype)


def cases(c):
    def push_pop():
        x = v1.placeholder(tf.float32, [2])
        e = raw_ops.EmptyTensorList(element_shape=np.int32([2]), max_num_elements=-1, element_dtype=tf.float32)
        one = raw_ops.TensorListPushBack(input_handle=e, tensor=x)
        two = raw_ops.TensorListPushBack(input_handle=one, tensor=x * 2)
        rest, last = raw_ops.TensorListPopBack(input_handle=two, element_shape=np.int32([2]), element_dtype=tf.float32)
        lengths = [raw_ops.TensorListLength(input_handle=h) for h in (e, one, two, rest)]
        return [({x: np.float32([1, 2])}, [last, *lengths])]

    def set_get():
        i = v1.placeholder(tf.int32, [])
        h = reserve([2], 3)
        s = raw_ops.TensorListSetItem(
            input_handle=h, index=i, item=tf.constant([1.0, 2.0]), resize_if_index_out_of_bounds=False
        )
        get = lambda handle, at: raw_ops.TensorListGetItem(
            input_handle=handle, index=at, element_shape=np.int32([2]), element_dtype=tf.float32
        )
        return [({i: np.int32(k)}, [get(s, i), get(s, 0)]) for k in (0, 1, 2, 3, -1)] + [({}, [get(h, 0)])]

    def set_resizes():
        h = reserve([], 1)
        s = raw_ops.TensorListSetItem(
            input_handle=h, index=3, item=tf.constant(5.0), resize_if_index_out_of_bounds=True
        )
        return [
            (
                {},
                [
                    raw_ops.TensorListLength(input_handle=s),
                    raw_ops.TensorListStack(input_handle=s, element_shape=np.int32([]), element_dtype=tf.float32),
                ],
            )
        ]

    def values_are_copied():
        h = reserve([], 2)
        a = raw_ops.TensorListSetItem(input_handle=h, index=0, item=tf.constant(1.0))
        b = raw_ops.TensorListSetItem(input_handle=a, index=0, item=tf.constant(2.0))
        stack = lambda handle: raw_ops.TensorListStack(
            input_handle=handle, element_shape=np.int32([]), element_dtype=tf.float32
        )
        return [({}, [stack(a), stack(b)])]

    def from_tensor():
        x = v1.placeholder(tf.float32, [None, 2])
        h = raw_ops.TensorListFromTensor(tensor=x, element_shape=np.int32([2]))
        stacked = raw_ops.TensorListStack(input_handle=h, element_shape=np.int32([2]), element_dtype=tf.float32)
        gathered = raw_ops.TensorListGather(
            input_handle=h, indices=[1, 0, 1], element_shape=np.int32([2]), element_dtype=tf.float32
        )
        return [
            ({x: np.float32([[1, 2], [3, 4]])}, [stacked, gathered]),
            ({x: np.zeros((0, 2), np.float32)}, [stacked]),
        ]

    def scatter():
        x = v1.placeholder(tf.float32, [None])
        a = raw_ops.TensorListScatter(tensor=x, indices=[2, 0], element_shape=np.int32([]))
        b = raw_ops.TensorListScatterV2(tensor=x, indices=[2, 0], element_shape=np.int32([]), num_elements=4)
        stack = lambda handle: raw_ops.TensorListStack(
            input_handle=handle, element_shape=np.int32([]), element_dtype=tf.float32
        )
        return [({x: np.float32([1, 2])}, [stack(a), stack(b)])]

    def concat_and_split():
        x = v1.placeholder(tf.float32, [None, 2])
        h = raw_ops.TensorListSplit(tensor=x, element_shape=np.int32([-1, 2]), lengths=np.int64([1, 0, 2]))
        y, lengths = raw_ops.TensorListConcatV2(
            input_handle=h, element_shape=np.int32([-1, 2]), leading_dims=np.int64([]), element_dtype=tf.float32
        )
        return [({x: np.float32([[1, 2], [3, 4], [5, 6]])}, [y, lengths])]

    def concat_old():
        x = v1.placeholder(tf.float32, [None, 2])
        h = raw_ops.TensorListSplit(tensor=x, element_shape=np.int32([-1, 2]), lengths=np.int64([1, 2]))
        y, lengths = raw_ops.TensorListConcat(input_handle=h, element_dtype=tf.float32, element_shape=[None, 2])
        return [({x: np.float32([[1, 2], [3, 4], [5, 6]])}, [y, lengths])]

    def scatter_into_existing():
        x = v1.placeholder(tf.float32, [None])
        h = raw_ops.TensorListFromTensor(tensor=tf.constant([1.0, 2.0, 3.0]), element_shape=np.int32([]))
        # Without a gap: stock takes elements that scattering skips as empty ones, and the stack then holds stray memory.
        s = raw_ops.TensorListScatterIntoExistingList(input_handle=h, tensor=x, indices=[3, 0])
        return [
            (
                {x: np.float32([7, 8])},
                [raw_ops.TensorListStack(input_handle=s, element_shape=np.int32([]), element_dtype=tf.float32)],
            )
        ]

    def shape_and_resize():
        h = reserve([2, -1], 2)
        r = raw_ops.TensorListResize(input_handle=h, size=5)
        shape = raw_ops.TensorListElementShape(input_handle=h, shape_type=tf.int32)
        return [({}, [raw_ops.TensorListLength(input_handle=r), shape])]

    def add_and_zeros():
        x = v1.placeholder(tf.float32, [2, 2])
        h = raw_ops.TensorListFromTensor(tensor=x, element_shape=np.int32([2]))
        stack = lambda handle: raw_ops.TensorListStack(
            input_handle=handle, element_shape=np.int32([2]), element_dtype=tf.float32
        )
        return [
            ({x: np.float32([[1, 2], [3, 4]])}, [stack(raw_ops.AddN(inputs=[h, h])), stack(raw_ops.ZerosLike(x=h))])
        ]

    def push_back_batch():
        x = v1.placeholder(tf.float32, [2])
        lists = tf.stack([reserve([], 0), reserve([], 0)])
        pushed = raw_ops.TensorListPushBackBatch(input_handles=lists, tensor=x)
        return [({x: np.float32([1, 2])}, [raw_ops.TensorListLength(input_handle=pushed[1])])]

    def concat_lists():
        a = raw_ops.TensorListFromTensor(tensor=tf.constant([1.0, 2.0]), element_shape=np.int32([]))
        b = raw_ops.TensorListFromTensor(tensor=tf.constant([3.0]), element_shape=np.int32([]))
        both = raw_ops.TensorListConcatLists(input_a=a, input_b=b, element_dtype=tf.float32)
        return [
            ({}, [raw_ops.TensorListStack(input_handle=both, element_shape=np.int32([]), element_dtype=tf.float32)])
        ]

    def wrong_shape():
        x = v1.placeholder(tf.float32)
        s = raw_ops.TensorListSetItem(input_handle=reserve([2], 1), index=0, item=x)
        return [({x: np.float32([1, 2, 3])}, [raw_ops.TensorListLength(input_handle=s)])]

    def wrong_dtype():
        s = raw_ops.TensorListSetItem(input_handle=reserve([], 1), index=0, item=tf.constant(1))
        return [({}, [raw_ops.TensorListLength(input_handle=s)])]

    def pop_empty():
        e = raw_ops.EmptyTensorList(element_shape=np.int32([]), max_num_elements=-1, element_dtype=tf.float32)
        _rest, last = raw_ops.TensorListPopBack(input_handle=e, element_shape=np.int32([]), element_dtype=tf.float32)
        return [({}, [last])]

    def too_many():
        e = raw_ops.EmptyTensorList(element_shape=np.int32([]), max_num_elements=1, element_dtype=tf.float32)
        for _ in range(2):
            e = raw_ops.TensorListPushBack(input_handle=e, tensor=tf.constant(1.0))
        return [({}, [raw_ops.TensorListLength(input_handle=e)])]

    def unknown_element_shape():
        h = reserve(-1, 2)
        stack = raw_ops.TensorListStack(input_handle=h, element_shape=np.int32(-1), element_dtype=tf.float32)
        return [({}, [stack])]

    def stack_wrong_count():
        h = reserve([], 2)
        return [
            (
                {},
                [
                    raw_ops.TensorListStack(
                        input_handle=h, element_shape=np.int32([]), element_dtype=tf.float32, num_elements=3
                    )
                ],
            )
        ]

    def string_list():
        h = raw_ops.TensorListFromTensor(tensor=tf.constant(["a", "b"]), element_shape=np.int32([]))
        r = raw_ops.TensorListResize(input_handle=h, size=3)
        return [({}, [raw_ops.TensorListStack(input_handle=r, element_shape=np.int32([]), element_dtype=tf.string)])]

    def loop():
        x = v1.placeholder(tf.float32, [None])
        out = tf.TensorArray(tf.float32, size=tf.size(x))
        source = tf.TensorArray(tf.float32, size=tf.size(x)).unstack(x)
        _, out = tf.while_loop(
            lambda i, o: i < tf.size(x), lambda i, o: (i + 1, o.write(i, source.read(i) * 2.0)), [0, out]
        )
        y = out.stack()
        return [({x: np.float32([1, 2, 3])}, [y, tf.gradients(y, x)[0]])]

    builds = [
        push_pop,
        set_get,
        set_resizes,
        values_are_copied,
        from_tensor,
        scatter,
        concat_and_split,
        concat_old,
        scatter_into_existing,
        shape_and_resize,
        add_and_zeros,
    ]
    builds += [
        push_back_batch,
        concat_lists,
        wrong_shape,
        wrong_dtype,
        pop_empty,
        too_many,
        unknown_element_shape,
        stack_wrong_count,
        string_list,
        loop,
    ]
    for build in builds:
        c.traced(build.__name__, build)
