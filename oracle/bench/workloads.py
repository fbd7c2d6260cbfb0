"""Workloads of the ratio suite: each workload opens on one server and then gives one sample after the other."""

import dataclasses
import time
import typing

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

# Sessions of the workload under way, on both servers.
_sessions = []


@dataclasses.dataclass
class Workload:
    """`open(target)` prepares a server and returns a function that takes one sample in `unit`."""

    name: str
    unit: str
    open: typing.Callable
    # Whether a larger sample is better.
    rate: bool = False
    # The least ratio to stock, and the most that ours may take, in `unit`.
    least_ratio: float | None = None
    most: float | None = None
    rounds: int = 9


def _session(target, graph, plain):
    """A session; `plain` keeps stock from rewriting the graph, so that the nodes in it really run."""
    config = v1.ConfigProto(isolate_session_state=True)
    if plain:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
    _sessions.append(v1.Session(target, graph=graph, config=config))
    return _sessions[-1]


def close():
    """Ends the sessions of the last workload, so that the next one finds memory."""
    while _sessions:
        _sessions.pop().close()


def _seconds(call, repeats):
    """The median time of one call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _empty_steps(target):
    with tf.Graph().as_default() as graph:
        nothing = tf.no_op()
    call = _session(target, graph, False).make_callable([nothing])
    return lambda: 1 / _seconds(call, 200)


def _difference(target, build, per):
    """Time per unit of work: steps that do it and steps that do not, in turn; `build(work)` gives feeds and what to run."""
    with tf.Graph().as_default() as graph:
        feeds, run = build(True)
        base_feeds, base_run = build(False)
    session = _session(target, graph, True)
    call = session.make_callable(run, list(feeds))
    base = session.make_callable(base_run, list(base_feeds))
    values, base_values = list(feeds.values()), list(base_feeds.values())

    def sample():
        differences = []
        for _ in range(60):
            start = time.perf_counter()
            base(*base_values)
            middle = time.perf_counter()
            call(*values)
            differences.append(time.perf_counter() - middle - (middle - start))
        return float(np.median(differences)) / per * 1e9

    return sample


def _chain(target, nodes=1000):
    def build(work):
        x, y = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
        last = x
        for _ in range(nodes if work else 0):
            last = tf.raw_ops.AddV2(x=last, y=y)
        return {x: np.float32(0), y: np.float32(1)}, tf.identity(last)

    return _difference(target, build, nodes)


def _wide(target, nodes=1000):
    """Independent sums of all pairs from two groups of feeds: no two are alike, and no constants run beside them."""

    def build(work):
        left, right = ([v1.placeholder(tf.float32, []) for _ in range(32)] for _ in range(2))
        pairs = [(a, b) for a in left for b in right][: nodes if work else 0]
        sums = [tf.raw_ops.AddV2(x=a, y=b) for a, b in pairs]
        return {x: np.float32(i) for i, x in enumerate(left + right)}, [tf.group(sums)]

    return _difference(target, build, nodes)


def _feed(size, repeats):
    def open_on(target):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None])
            count = tf.size(x)
        call = _session(target, graph, False).make_callable(count, [x])
        value = np.arange(size // 4, dtype=np.float32)
        return lambda: size / 1e6 / _seconds(lambda: call(value), repeats)

    return open_on


def _fetch(size, repeats):
    def open_on(target):
        with tf.Graph().as_default() as graph:
            handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[size // 4], shared_name="x")
            fill = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.fill([size // 4], 1.5))
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        session = _session(target, graph, False)
        session.run(fill)
        call = session.make_callable(read)
        return lambda: size / 1e6 / _seconds(call, repeats)

    return open_on


def _kernel(build, inputs, repeats):
    """Time of one op: `build(tensors, repeats)` puts it into a graph `repeats` times and returns what must run."""

    def open_on(target):
        with tf.Graph().as_default() as graph:
            variables, assigns, feeds = [], [], {}
            for i, value in enumerate(inputs):
                handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=f"v{i}")
                feed = v1.placeholder(value.dtype, value.shape)
                assigns.append(tf.raw_ops.AssignVariableOp(resource=handle, value=feed))
                feeds[feed] = value
                variables.append(handle)
            read = [tf.raw_ops.ReadVariableOp(resource=h, dtype=value.dtype) for h, value in zip(variables, inputs)]
            work = tf.group(build(read, repeats))
            base = tf.group([r.op for r in read])
        session = _session(target, graph, True)
        session.run(assigns, feeds)
        run, rest = session.make_callable([work]), session.make_callable([base])

        def sample():
            differences = []
            for _ in range(5):
                start = time.perf_counter()
                rest()
                middle = time.perf_counter()
                run()
                differences.append(time.perf_counter() - middle - (middle - start))
            return float(np.median(differences)) / repeats * 1e6

        return sample

    return open_on


def _chained(op):
    """Each op takes the result of the one before, so that none is like another."""

    def build(read, repeats):
        last = read[0]
        for _ in range(repeats):
            last = op(last, *read[1:])
        return [last]

    return build


def _each(op):
    """One op on every variable."""
    return lambda read, repeats: [op(value) for value in read]


def _uniform(*shape):
    return np.random.RandomState(1).uniform(0.1, 1.0, shape).astype(np.float32)


def _kernels():
    """Names, graphs, inputs and how often the op stands in the graph: enough for a step of some ten milliseconds."""
    raw = tf.raw_ops
    mean = lambda n, m: np.full((n, m), 1 / n, np.float32)
    for m, k, n, repeats in ((32, 64, 128, 400), (128, 784, 512, 20), (512, 512, 512, 10), (1024, 1024, 1024, 2)):
        pair = lambda x, a, b: raw.MatMul(a=raw.MatMul(a=x, b=a), b=b)
        yield f"matmul {m}×{k}×{n} and back", _chained(pair), [_uniform(m, k), mean(k, n), mean(n, k)], repeats
    for rows, columns, repeats in ((128, 10, 1000), (128, 1000, 100), (1024, 1024, 10)):
        yield f"softmax {rows}×{columns}", _chained(lambda x: raw.Softmax(logits=x)), [_uniform(rows, columns)], repeats
    for label, axes in (("all", [0, 1]), ("rows", [1]), ("columns", [0])):
        for rows, columns, repeats in ((64, 64, 256), (1024, 1024, 8), (4096, 4096, 2)):
            total = lambda x, axes=axes: raw.Sum(input=x, axis=axes)
            yield f"sum of {label} of {rows}×{columns}", _each(total), [_uniform(rows, columns)] * repeats, repeats
    for repeats, rows, columns in ((256, 64, 64), (8, 1024, 1024)):
        yield (
            f"max of rows of {rows}×{columns}",
            _each(lambda x: raw.Max(input=x, axis=[1])),
            [_uniform(rows, columns)] * repeats,
            repeats,
        )
    for label, size, repeats in (("4K", 1 << 12, 1000), ("1M", 1 << 20, 40), ("16M", 1 << 24, 3)):
        yield f"add of {label}", _chained(lambda x, y: raw.AddV2(x=x, y=y)), [_uniform(size), _uniform(size)], repeats
        yield (
            f"mul of {label}",
            _chained(lambda x, y: raw.Mul(x=x, y=y)),
            [_uniform(size), np.ones(size, np.float32)],
            repeats,
        )
    for label, size, repeats in (("4K", 1 << 12, 500), ("1M", 1 << 20, 10)):
        for name, op in (("tanh", raw.Tanh), ("sigmoid", raw.Sigmoid), ("sqrt", raw.Sqrt)):
            yield f"{name} of {label}", _chained(lambda x, op=op: op(x=x)), [_uniform(size)], repeats
        yield f"exp of {label}", _chained(lambda x: raw.Exp(x=raw.Neg(x=x))), [_uniform(size)], repeats
        yield f"relu of {label}", _chained(lambda x: raw.Relu(features=x)), [_uniform(size)], repeats
    for (rows, columns), other, repeats in (
        ((1024, 1024), (1024,), 40),
        ((1024, 1024), (1024, 1), 40),
        ((4096, 64), (64,), 100),
        ((64, 64), (64,), 1000),
    ):
        op = lambda x, y: raw.AddV2(x=x, y=y)
        yield (
            f"broadcast {rows}×{columns} + {'×'.join(map(str, other))}",
            _chained(op),
            [_uniform(rows, columns), _uniform(*other)],
            repeats,
        )
    for rows, columns, repeats in ((1024, 64, 200), (65536, 64, 8), (1 << 20, 1, 10)):
        order = np.random.RandomState(2).permutation(rows).astype(np.int32)
        op = lambda x, i: raw.GatherV2(params=x, indices=i, axis=0)
        yield f"gather {rows} rows of {columns}", _chained(op), [_uniform(rows, columns), order], repeats
    for size, repeats in ((64, 1000), (512, 100), (2048, 6)):
        yield (
            f"transpose {size}×{size}",
            _chained(lambda x: raw.Transpose(x=x, perm=[1, 0])),
            [_uniform(size, size)],
            repeats,
        )
    swap = lambda x: raw.Transpose(x=x, perm=[0, 2, 1, 3])
    yield "transpose 8×64×64×32 inside", _chained(swap), [_uniform(8, 64, 64, 32)], 20
    yield from _matrix_kernels()
    yield from _image_kernels()


def _matrix_kernels():
    """Decompositions and Fourier transforms, each on variables of its own, so that none is like another."""
    raw = tf.raw_ops

    def definite(*shape):
        a = _uniform(*shape)
        return (a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])).astype(np.float32)

    # The shape of the matrices, and how many times each op is done.
    for shape, repeats in (((2000, 4, 4), 4), ((256, 16, 16), 4), ((100, 100), 16), ((500, 500), 2)):
        label = "×".join(map(str, shape))
        for name, op in (
            ("cholesky", lambda x: raw.Cholesky(input=x)),
            ("lu", lambda x: raw.Lu(input=x).lu),
            ("inverse", lambda x: raw.MatrixInverse(input=x)),
            ("determinant", lambda x: raw.MatrixDeterminant(input=x)),
            ("self-adjoint eigenvectors", lambda x: raw.SelfAdjointEigV2(input=x).v),
            ("svd", lambda x: raw.Svd(input=x).u),
        ):
            yield f"{name} of {label}", _each(op), [definite(*shape)] * repeats, repeats
        if shape[-1] <= 100:
            any_ = [_uniform(*shape)] * repeats
            yield f"eigenvectors of {label}", _each(lambda x: raw.Eig(input=x, Tout=tf.complex64).v), any_, repeats
    for rows, length, repeats in ((1024, 64, 8), (64, 1024, 8), (16, 1000, 16), (1, 1 << 20, 2)):
        real = [_uniform(rows, length)] * repeats
        complex_ = [(x + 1j * x).astype(np.complex64) for x in real]
        yield f"fft of {rows}×{length}", _each(lambda x: raw.FFT(input=x)), complex_, repeats
        transform = lambda x, length=length: raw.RFFT(input=x, fft_length=[length])
        yield f"rfft of {rows}×{length}", _each(transform), real, repeats
    images = [(_uniform(8, 128, 128) + 0j).astype(np.complex64)] * 4
    yield "fft2d of 8×128×128", _each(lambda x: raw.FFT2D(input=x)), images, 4


def _image_kernels():
    """The ops that convolutional networks spend their time in: each on variables of its own, so that none is like another."""
    raw = tf.raw_ops
    for label, image, kernel, stride, repeats in (
        ("3×3 of 32×8×8×1 to 16", (32, 8, 8, 1), (3, 3, 1, 16), 1, 40),
        ("5×5 of 64×28×28×1 to 32", (64, 28, 28, 1), (5, 5, 1, 32), 1, 4),
        ("3×3 of 32×14×14×32 to 64", (32, 14, 14, 32), (3, 3, 32, 64), 1, 4),
        ("3×3 of 16×28×28×64 to 64", (16, 28, 28, 64), (3, 3, 64, 64), 1, 2),
        ("3×3 by 2 of 16×56×56×32 to 64", (16, 56, 56, 32), (3, 3, 32, 64), 2, 2),
        ("1×1 of 16×28×28×128 to 64", (16, 28, 28, 128), (1, 1, 128, 64), 1, 4),
    ):
        common = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        result = (image[0], -(-image[1] // stride), -(-image[2] // stride), kernel[3])
        filters = [_uniform(*kernel) for _ in range(repeats)]
        first, gradient = _uniform(*image), _uniform(*result)
        forward = lambda read, _, common=common: [raw.Conv2D(input=read[0], filter=f, **common) for f in read[1:]]
        yield f"conv {label}", forward, [first, *filters], repeats
        to_input = lambda read, _, image=image, common=common: [
            raw.Conv2DBackpropInput(input_sizes=image, filter=f, out_backprop=read[0], **common) for f in read[1:]
        ]
        yield f"conv {label}, gradient of images", to_input, [gradient, *filters], repeats
        to_filter = lambda read, _, kernel=kernel, common=common: [
            raw.Conv2DBackpropFilter(input=x, filter_sizes=kernel, out_backprop=read[0], **common) for x in read[1:]
        ]
        yield (
            f"conv {label}, gradient of filters",
            to_filter,
            [gradient, *(_uniform(*image) for _ in range(repeats))],
            repeats,
        )
    image, repeats = (32, 28, 28, 32), 10
    common = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    images, gradient = [_uniform(*image) for _ in range(repeats)], _uniform(32, 14, 14, 32)
    yield "max pool of 32×28×28×32", _each(lambda x: raw.MaxPool(input=x, **common)), images, repeats
    max_back = lambda read, _: [
        raw.MaxPoolGrad(orig_input=x, orig_output=read[0], grad=read[0], **common) for x in read[1:]
    ]
    yield "max pool of 32×28×28×32, gradient", max_back, [gradient, *images], repeats
    yield "mean pool of 32×28×28×32", _each(lambda x: raw.AvgPool(value=x, **common)), images, repeats
    mean_back = lambda read, _: [raw.AvgPoolGrad(orig_input_shape=image, grad=g, **common) for g in read]
    yield "mean pool of 32×28×28×32, gradient", mean_back, [_uniform(32, 14, 14, 32) for _ in range(repeats)], repeats
    vector = _uniform(32)
    normalize = lambda read, _: [
        raw.FusedBatchNormV3(x=x, scale=read[0], offset=read[0], mean=[], variance=[]).y for x in read[1:]
    ]
    yield "batch norm of 32×28×28×32", normalize, [vector, *images], repeats

    def normalize_back(read, _):
        scale = read[0]
        call = lambda x: raw.FusedBatchNormGradV3(
            y_backprop=x, x=read[1], scale=scale, reserve_space_1=scale, reserve_space_2=scale, reserve_space_3=[]
        )
        return [call(x).x_backprop for x in read[2:]]

    yield "batch norm of 32×28×28×32, gradient", normalize_back, [vector, images[0], *images], repeats
    depthwise = lambda read, _: [
        raw.DepthwiseConv2dNative(input=x, filter=read[0], strides=[1, 1, 1, 1], padding="SAME") for x in read[1:]
    ]
    yield "depthwise conv 3×3 of 32×28×28×32", depthwise, [_uniform(3, 3, 32, 1), *images], repeats


def _prepared(build, repeats=20, per=1):
    """Time of each of the `per` works of a step on what the server has: `build()` gives what runs once before, and what is
    timed."""

    def open_on(target):
        with tf.Graph().as_default() as graph:
            before, timed = build()
        session = _session(target, graph, True)
        for step in before:
            session.run(step)
        call = session.make_callable([tf.group(timed)] if not isinstance(timed, tf.Operation) else [timed])
        return lambda: _seconds(call, repeats) / per * 1e6

    return open_on


def _kept(name, value):
    """A tensor in a variable of the server: its setting and its reading."""
    handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=name)
    set_it = tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return set_it, tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)


# Lookups or inserts in one step, one after the other, so that the step around them is a small part of the time.
_TIMES = 8


def _tables(entries=100_000):
    """Lookups and inserts of as many keys as a table has."""
    raw = tf.raw_ops
    keys = {
        "strings": np.array([f"word{n}".encode() for n in range(entries)], dtype=object),
        "integers": np.random.RandomState(2).permutation(entries).astype(np.int64) * 7919,
    }
    order = np.random.RandomState(3).permutation(entries)

    def build(kind, static, insert):
        def graph():
            entered, asked = _kept("entered", tf.constant(keys[kind])), _kept("asked", tf.constant(keys[kind][order]))
            values = tf.constant(np.arange(entries))
            make = raw.HashTableV2 if static else raw.MutableHashTableV2
            key_type = tf.string if kind == "strings" else tf.int64
            table = make(key_dtype=key_type, value_dtype=tf.int64, shared_name=kind)
            put = raw.InitializeTableV2 if static else raw.LookupTableInsertV2
            fill = put(table_handle=table, keys=entered[1], values=values)
            last = []
            for number in range(_TIMES):
                with tf.control_dependencies(last):
                    if insert:
                        last = [raw.LookupTableInsertV2(table_handle=table, keys=asked[1], values=values)]
                    else:
                        default = np.int64(-1 - number)
                        last = [raw.LookupTableFindV2(table_handle=table, keys=asked[1], default_value=default).op]
            return [[entered[0], asked[0]], fill], last[0]

        return graph

    for kind in keys:
        for name, static in (("static", True), ("mutable", False)):
            yield f"lookup of 100,000 {kind} in a {name} table", build(kind, static, False), 2
        yield f"insert of 100,000 {kind}", build(kind, False, True), 1.2


def _parse(examples=512):
    """Examples with dense numbers, a label and lists of identifiers."""
    random = np.random.RandomState(4)

    def example():
        feature = {
            "numbers": tf.train.Feature(float_list=tf.train.FloatList(value=random.uniform(size=20))),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[random.randint(10)])),
            "word": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"w" * random.randint(1, 9)])),
            "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=random.randint(1 << 20, size=30))),
        }
        feature |= {
            f"value{n}": tf.train.Feature(float_list=tf.train.FloatList(value=[random.uniform()])) for n in range(20)
        }
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    serialized = [example() for _ in range(examples)]

    def graph():
        set_it, read = _kept("examples", tf.constant(serialized))
        single = {f"value{n}": tf.io.FixedLenFeature([], tf.float32) for n in range(20)}
        parsed = tf.io.parse_example(
            read,
            single
            | {
                "numbers": tf.io.FixedLenFeature([20], tf.float32),
                "label": tf.io.FixedLenFeature([], tf.int64),
                "word": tf.io.FixedLenFeature([], tf.string),
                "ids": tf.io.VarLenFeature(tf.int64),
            },
        )
        return [set_it], parsed["label"].op

    return graph


def all_workloads():
    """The suite, in the order of the table."""
    yield Workload("empty steps", "steps/s", _empty_steps, rate=True, least_ratio=2)
    yield Workload("node in a chain of 1,000", "ns", _chain, least_ratio=2.5, most=150)
    yield Workload("node among 1,000 independent ones", "ns", _wide, least_ratio=2.5, most=150)
    for label, size, repeats, rounds in (
        ("1 KB", 1 << 10, 100, 9),
        ("1 MB", 1 << 20, 20, 9),
        ("256 MB", 1 << 28, 1, 5),
    ):
        least = 1.5 if label == "256 MB" else None
        yield Workload(f"feed of {label}", "MB/s", _feed(size, repeats), rate=True, least_ratio=least, rounds=rounds)
        yield Workload(f"fetch of {label}", "MB/s", _fetch(size, repeats), rate=True, least_ratio=least, rounds=rounds)
    for name, build, inputs, repeats in _kernels():
        yield Workload(name, "µs", _kernel(build, inputs, repeats), least_ratio=0.9, rounds=7)
    for name, build, least in _tables():
        yield Workload(name, "µs", _prepared(build, per=_TIMES), least_ratio=least, rounds=7)
    yield Workload("ParseExampleV2 of 512 examples", "µs", _prepared(_parse()), least_ratio=1.2, rounds=7)
