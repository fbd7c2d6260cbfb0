"""Activations, losses, convolutions, pools and normalization."""

from gradients import any_, fixed, positive

import numpy as np
import tensorflow as tf

raw = tf.raw_ops


def distinct(*shape):
    """Numbers of which no two are close: where the largest one is does not change by a small step."""
    count = int(np.prod(shape))
    return fixed((np.random.RandomState(5).permutation(count).reshape(shape) - count / 2) / 8)


ACTIVATIONS = {
    "Relu": tf.nn.relu,
    "Relu6": tf.nn.relu6,
    "LeakyRelu": lambda x: tf.nn.leaky_relu(x, 0.3),
    "Elu": tf.nn.elu,
    "Selu": tf.nn.selu,
    "Softplus": tf.nn.softplus,
    "Softsign": tf.nn.softsign,
}


def slope(function):
    """The function's first derivative, for the second one. Constant weights would hide part of it."""

    def build(*xs):
        results = function(*xs)
        results = results if isinstance(results, list) else [results]
        return [g for g in tf.gradients([r * r for r in results], list(xs)) if g is not None]

    return build


def cases(c):
    activations(c)
    losses(c)
    convolutions(c)
    pools(c)
    normalization(c)
    selection(c)
    sequences(c)
    fractional_pools(c)


def activations(c):
    for name, function in ACTIVATIONS.items():
        c.case(name, function, any_(3, 4))
        # Stock has no gradient for SoftsignGrad.
        if name != "Softsign":
            c.case(f"{name}/second", slope(function), any_(3, 4), unsmooth=name in ("Elu", "Selu"))
    for format in ("NHWC", "NCHW"):
        channels = 2 if format == "NCHW" else 4
        bias = lambda x, b, format=format: tf.square(tf.nn.bias_add(x, b, data_format=format))
        c.case(f"BiasAdd/{format}", bias, any_(3, 2, 3, 4), any_(channels), unknown=False)
        c.case(f"BiasAdd/{format}/second", slope(bias), any_(3, 2, 3, 4), any_(channels), unknown=False)
    c.case("BiasAdd", lambda x, b: tf.square(raw.BiasAdd(value=x, bias=b)), any_(3, 4), any_(4))
    c.case("BiasAddV1", lambda x, b: tf.square(raw.BiasAddV1(value=x, bias=b)), any_(3, 4), any_(4))


def losses(c):
    c.case("Softmax", tf.nn.softmax, any_(3, 4))
    c.case("Softmax/second", slope(tf.nn.softmax), any_(3, 4))
    c.case("LogSoftmax", tf.nn.log_softmax, any_(3, 4))
    c.case("LogSoftmax/second", slope(tf.nn.log_softmax), any_(3, 4))
    entropy = lambda x, labels: raw.SoftmaxCrossEntropyWithLogits(features=x, labels=labels).loss
    c.case("SoftmaxCrossEntropyWithLogits", entropy, any_(3, 4), fixed([[0.25] * 4, [1, 0, 0, 0], [0.5, 0.5, 0, 0]]))
    c.case(
        "SoftmaxCrossEntropyWithLogits/second",
        lambda x: tf.gradients(entropy(x, tf.nn.softmax(tf.zeros_like(x))) ** 2, x),
        any_(3, 4),
    )
    sparse = lambda x: raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=[1, 0, 3]).loss
    c.case("SparseSoftmaxCrossEntropyWithLogits", sparse, any_(3, 4))
    c.case("SparseSoftmaxCrossEntropyWithLogits/second", slope(sparse), any_(3, 4))
    c.case("L2Loss", tf.nn.l2_loss, any_(3, 4))
    c.case("L2Loss/second", slope(tf.nn.l2_loss), any_(3, 4))


def convolutions(c):
    for padding in ("SAME", "VALID", [[0, 0], [1, 0], [2, 1], [0, 0]]):
        for stride in (1, 2):
            name = f"{padding if isinstance(padding, str) else 'EXPLICIT'}/{stride}"
            conv = lambda x, f, padding=padding, stride=stride: tf.compat.v1.nn.conv2d(
                x, f, [1, stride, stride, 1], padding
            )
            c.case(f"Conv2D/{name}", conv, any_(2, 4, 5, 2), any_(3, 2, 2, 3), unknown=stride == 1)
            deep = lambda x, f, padding=padding, stride=stride: tf.compat.v1.nn.depthwise_conv2d_native(
                x, f, [1, stride, stride, 1], padding
            )
            c.case(f"DepthwiseConv2dNative/{name}", deep, any_(2, 4, 5, 2), any_(3, 2, 2, 2), unknown=stride == 1)
    same = lambda x, f: tf.nn.conv2d(x, f, [1, 2, 1, 1], "SAME")
    c.case("Conv2D/second", slope(same), any_(1, 3, 3, 2), any_(2, 2, 2, 2))
    depthwise = lambda x, f: tf.compat.v1.nn.depthwise_conv2d_native(x, f, [1, 1, 1, 1], "SAME")
    c.case("DepthwiseConv2dNative/second", slope(depthwise), any_(1, 3, 3, 2), any_(2, 2, 2, 2))
    transposed = lambda x, f: tf.nn.conv2d_transpose(x, f, [1, 4, 4, 2], [1, 2, 2, 1])
    c.case("Conv2DBackpropInput", transposed, any_(1, 2, 2, 3), any_(3, 3, 2, 3))
    volume = lambda x, f: tf.nn.conv3d(x, f, [1, 1, 2, 1, 1], "SAME")
    c.case("Conv3D", volume, any_(1, 3, 3, 2, 2), any_(2, 2, 2, 2, 2))
    c.case("Conv3D/second", slope(volume), any_(1, 2, 3, 2, 1), any_(2, 2, 1, 1, 2))


def pools(c):
    for padding in ("SAME", "VALID"):
        sizes = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 1, 1], "padding": padding}
        c.case(f"MaxPool/{padding}", lambda x, sizes=sizes: raw.MaxPool(input=x, **sizes), distinct(2, 4, 5, 2))
        c.case(f"AvgPool/{padding}", lambda x, sizes=sizes: raw.AvgPool(value=x, **sizes), distinct(2, 4, 5, 2))
    sizes = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    c.case(
        "MaxPool/explicit", lambda x: tf.nn.max_pool2d(x, 2, 2, [[0, 0], [1, 0], [0, 1], [0, 0]]), distinct(2, 4, 5, 2)
    )
    c.case("MaxPool/second", slope(lambda x: raw.MaxPool(input=x, **sizes)), distinct(2, 4, 4, 2))
    c.case("AvgPool/second", slope(lambda x: raw.AvgPool(value=x, **sizes)), distinct(2, 4, 4, 2))
    v2 = lambda x: raw.MaxPoolV2(input=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    c.case("MaxPoolV2", v2, distinct(2, 4, 5, 2))
    c.case("MaxPoolV2/second", slope(v2), distinct(2, 4, 4, 2))
    c.case(
        "MaxPoolWithArgmax",
        lambda x: raw.MaxPoolWithArgmax(input=x, include_batch_in_index=True, **sizes).output,
        distinct(2, 4, 4, 2),
    )
    sizes = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 1, 1, 1], "padding": "SAME"}
    single = {"dtypes": ("float",)}
    c.case("MaxPool3D", lambda x: raw.MaxPool3D(input=x, **sizes), distinct(1, 3, 3, 3, 2), **single)
    c.case("MaxPool3D/second", slope(lambda x: raw.MaxPool3D(input=x, **sizes)), distinct(1, 3, 3, 3, 2), **single)
    c.case("AvgPool3D", lambda x: raw.AvgPool3D(input=x, **sizes), distinct(1, 3, 3, 3, 2), **single)
    c.case("AvgPool3D/second", slope(lambda x: raw.AvgPool3D(input=x, **sizes)), distinct(1, 3, 3, 3, 2), **single)


def normalization(c):
    single = {"dtypes": ("float",)}
    for op in (raw.FusedBatchNorm, raw.FusedBatchNormV2, raw.FusedBatchNormV3):
        name = op.__name__
        training = lambda x, scale, offset, op=op: op(x=x, scale=scale, offset=offset, mean=[], variance=[]).y
        c.case(f"{name}/training", training, any_(3, 2, 3, 2), positive(2), any_(2), **single)
        # Squares of normalized numbers add up to a constant, which has no slope to compare.
        curved = lambda *inputs, op=op: tf.sin(
            op(x=inputs[0], scale=inputs[1], offset=inputs[2], mean=[], variance=[], epsilon=1.0).y
        )
        c.case(f"{name}/training/second", slope(curved), any_(3, 2, 3, 2), positive(2), any_(2), **single)
        for format in ("NHWC", "NCHW"):
            known = lambda x, scale, offset, mean, variance, op=op, format=format: (
                op(
                    x=x, scale=scale, offset=offset, mean=mean, variance=variance, is_training=False, data_format=format
                ).y
            )
            c.case(
                f"{name}/inference/{format}",
                known,
                any_(3, 2, 3, 2),
                positive(2),
                any_(2),
                any_(2),
                positive(2),
                **single,
            )
            second = lambda *inputs, known=known: slope(lambda x, scale, offset: known(x, scale, offset, *inputs[3:]))(
                *inputs[:3]
            )
            c.case(
                f"{name}/inference/{format}/second",
                second,
                any_(3, 2, 3, 2),
                positive(2),
                any_(2),
                any_(2),
                positive(2),
                **single,
            )
        first = lambda x, scale, offset, op=op: (
            op(x=x, scale=scale, offset=offset, mean=[], variance=[], data_format="NCHW", epsilon=0.01).y
        )
        c.case(f"{name}/training_first", first, any_(3, 2, 3, 2), positive(2), any_(2), **single)
        curved = lambda *inputs, op=op: tf.sin(
            op(x=inputs[0], scale=inputs[1], offset=inputs[2], mean=[], variance=[], data_format="NCHW", epsilon=1.0).y
        )
        c.case(f"{name}/training_first/second", slope(curved), any_(3, 2, 3, 2), positive(2), any_(2), **single)
    c.case("LRN", lambda x: tf.nn.local_response_normalization(x, 1, 1.5, 0.5, 0.7), any_(2, 2, 2, 5), **single)


def selection(c):
    c.case("TopKV2", lambda x: tf.nn.top_k(x, 2).values, distinct(3, 5))
    c.case("TopKV2/rank_3", lambda x: tf.nn.top_k(x, 3).values, distinct(2, 3, 5))
    c.case("TopKV2/vector", lambda x: tf.nn.top_k(x, 2).values, distinct(5))
    c.case("NthElement", lambda x: tf.raw_ops.NthElement(input=x, n=1), distinct(3, 5))


def sequences(c):
    def ctc(logits, merge=True):
        indices = tf.constant([[0, 0], [0, 1], [1, 0]], tf.int64)
        labels = {"labels_indices": indices, "labels_values": [0, 1, 1], "sequence_length": [4, 3]}
        return raw.CTCLoss(inputs=logits, ctc_merge_repeated=merge, **labels).loss

    # Stock adds probabilities in single precision, whatever the type.
    c.case("CTCLoss", ctc, any_(4, 2, 3), unsmooth=True, dtypes=("float", "double"))
    c.case("CTCLoss/kept", lambda x: ctc(x, False), any_(4, 2, 3), unsmooth=True, dtypes=("float",))

    def lstm(op, **attrs):
        def build(x, cs, h, w, wci, wcf, wco, b):
            peepholes = {"wci": wci, "wcf": wcf, "wco": wco}
            made = op(seq_len_max=tf.constant(2, tf.int64), x=x, cs_prev=cs, h_prev=h, w=w, b=b, **peepholes, **attrs)
            return [made.h, made.cs]

        return build

    given = [any_(2, 2, 2), any_(2, 2), any_(2, 2), any_(4, 8), any_(2), any_(2), any_(2), any_(8)]
    for op in (raw.BlockLSTM, raw.BlockLSTMV2):
        c.case(f"{op.__name__}", lstm(op), *given, dtypes=("float",), unknown=False)
    peepholes = lstm(raw.BlockLSTM, use_peephole=True, cell_clip=0.0)
    c.case("BlockLSTM/peephole", peepholes, *given, dtypes=("float",), unknown=False)


def fractional_pools(c):
    seeded = {"pooling_ratio": [1.0, 1.5, 1.3, 1.0], "deterministic": True, "seed": 3, "seed2": 4}
    for overlapping in (False, True):
        name = "/overlapping" if overlapping else ""
        largest = lambda x, o=overlapping: raw.FractionalMaxPool(value=x, overlapping=o, **seeded).output
        mean = lambda x, o=overlapping: raw.FractionalAvgPool(value=x, overlapping=o, **seeded).output
        c.case(f"FractionalMaxPool{name}", largest, distinct(1, 6, 5, 2))
        # Stock's gradient of the average asks for the shape when the graph is built.
        c.case(f"FractionalAvgPool{name}", mean, any_(1, 6, 5, 2), unknown=False)
