"""Random numbers: stateful ops with seeds over several steps, and the stateless families."""

from values import *

import numpy as np


def stateful(c, op, inputs, label, steps=3, accuracy=None, **attrs):
    """A program that runs a seeded op several times; its stream goes on from step to step."""
    p = c.program(f"{op}/{label}", accuracy=accuracy)
    names = [p.const(value, name=f"x{i}") for i, value in enumerate(inputs)]
    p.node(op, names, name="y", **attrs)
    for _ in range(steps):
        p.step(fetch=["y"])


def seeded(c):
    shape = np.int32([2, 3])
    for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
        accuracy = "exact" if op == "RandomUniform" else "rounding"
        for dtype in c.dtypes(op, "dtype"):
            stateful(c, op, [shape], dtype, accuracy=accuracy, seed=7, seed2=11, dtype=dtype, T="int32")
        for seed, seed2 in ((1, 0), (0, 1), (87654321, 12345), (-1, -2), (2**40, 2**33 + 5)):
            stateful(
                c, op, [shape], f"seeds_{seed}_{seed2}", 1, accuracy, seed=seed, seed2=seed2, dtype="float", T="int32"
            )
        stateful(c, op, [np.int64([2, 2])], "int64_shape", 1, accuracy, seed=1, seed2=2, dtype="float", T="int64")
        stateful(c, op, [np.zeros(0, np.int32)], "scalar", 3, accuracy, seed=1, seed2=2, dtype="float", T="int32")
        stateful(c, op, [np.int32([0, 3])], "empty", 2, accuracy, seed=1, seed2=2, dtype="float", T="int32")
        # Longer than one group of the generator, and than one vector of the kernel.
        for dtype in ("half", "float", "double"):
            stateful(c, op, [np.int32([301])], f"long_{dtype}", 2, accuracy, seed=3, seed2=4, dtype=dtype, T="int32")
        stateful(c, op, [np.int32([2])], "unseeded", 1, "random", seed=0, seed2=0, dtype="float", T="int32")
        stateful(c, op, [np.int32([-1])], "negative_shape", 1, accuracy, seed=1, seed2=2, dtype="float", T="int32")
        stateful(c, op, [np.int32([[2]])], "matrix_shape", 1, accuracy, seed=1, seed2=2, dtype="float", T="int32")
        stateful(c, op, [np.int32(2)], "scalar_shape", 1, accuracy, seed=1, seed2=2, dtype="float", T="int32")
    for dtype in c.dtypes("RandomUniformInt", "Tout"):
        stateful(
            c,
            "RandomUniformInt",
            [shape, convert(-5, dtype), convert(20, dtype)],
            dtype,
            seed=7,
            seed2=11,
            Tout=dtype,
            T="int32",
        )
        stateful(
            c,
            "RandomUniformInt",
            [shape, convert(3, dtype), convert(3, dtype)],
            f"empty_range_{dtype}",
            1,
            seed=7,
            seed2=11,
            Tout=dtype,
            T="int32",
        )
    stateful(
        c,
        "RandomUniformInt",
        [shape, np.int32([0]), np.int32(2)],
        "vector_min",
        1,
        seed=7,
        seed2=11,
        Tout="int32",
        T="int32",
    )
    for dtype in ("float", "int64", "string", "bool"):
        stateful(c, "RandomShuffle", [iota(7)(dtype)], dtype, seed=7, seed2=11, T=dtype)
    stateful(c, "RandomShuffle", [iota(5, 2)("float")], "rows", seed=7, seed2=11, T="float")
    stateful(c, "RandomShuffle", [empty(0, 2)("float")], "empty", seed=7, seed2=11, T="float")
    stateful(c, "RandomShuffle", [arr()("float")], "scalar", seed=7, seed2=11, T="float")
    logits = np.log(np.float32([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-6]]))
    for output in ("int32", "int64"):
        stateful(c, "Multinomial", [logits, np.int32(6)], output, seed=7, seed2=11, T="float", output_dtype=output)
    for dtype in ("half", "bfloat16", "double"):
        stateful(c, "Multinomial", [logits.astype(NUMPY[dtype]), np.int32(6)], dtype, seed=7, seed2=11, T=dtype)
    stateful(c, "Multinomial", [logits, np.int32(0)], "none", 1, seed=7, seed2=11, T="float")
    stateful(c, "Multinomial", [logits, np.int32(-1)], "negative", 1, seed=7, seed2=11, T="float")
    stateful(c, "Multinomial", [logits[0], np.int32(1)], "vector", 1, seed=7, seed2=11, T="float")
    for dtype in ("half", "float", "double"):
        stateful(
            c,
            "RandomGamma",
            [np.int32([3]), convert([0.5, 2.0], dtype)],
            dtype,
            accuracy="rounding",
            seed=7,
            seed2=11,
            S="int32",
            T=dtype,
        )
        stateful(
            c,
            "RandomPoissonV2",
            [np.int32([3]), convert([0.5, 20.0], dtype)],
            dtype,
            seed=7,
            seed2=11,
            S="int32",
            R=dtype,
            dtype="int64",
        )
        bounds = [convert(v, dtype) for v in (0.0, 1.0, -1.0, 2.0)]
        stateful(
            c,
            "ParameterizedTruncatedNormal",
            [np.int32([6]), *bounds],
            dtype,
            accuracy="rounding",
            seed=7,
            seed2=11,
            T="int32",
            dtype=dtype,
        )


def without_seeds(c):
    """Ops whose values nobody can foresee, and some of the first generation."""
    for dtype in ("int32", "int64", "uint32", "uint64"):
        stateful(c, "NonDeterministicInts", [np.int32([2, 3])], dtype, 1, "random", dtype=dtype, shape_dtype="int32")
    stateful(
        c,
        "RandomPoisson",
        [np.int32([3]), np.float32([0.5, 20.0])],
        "float",
        seed=7,
        seed2=11,
        S="int32",
        dtype="float",
    )
    p = c.program("DummySeedGenerator")
    p.node("DummySeedGenerator", name="g")
    p.step(target=["g"])
    p = c.program("StatefulStandardNormal/float", accuracy="rounding", producer=28)
    p.node("VarHandleOp", name="v", dtype="int64", shape=[4])
    p.const(np.int64([1, 1234, 0, 99]), name="init")
    p.node("AssignVariableOp", ["v", "init"], name="assign", dtype="int64")
    p.const(np.int32([2, 3]), name="shape")
    p.node("StatefulStandardNormal", ["v", "shape"], name="y", dtype="float", shape_dtype="int32")
    p.step(target=["assign"])
    p.step(fetch=["y"])
    p.step(fetch=["y"])


def streams(c):
    # The stream belongs to the node: it goes on when the next step fetches something else as well.
    p = c.program("stream/other_signature")
    p.const(np.int32([2]), name="shape")
    p.node("RandomUniform", ["shape"], name="a", seed=1, seed2=2, dtype="float", T="int32")
    p.node("RandomUniform", ["shape"], name="b", seed=1, seed2=2, dtype="float", T="int32")
    p.step(fetch=["a"])
    p.step(fetch=["a", "b"])
    p.step(fetch=["b"])
    p = c.program("stream/shape_fed")
    p.placeholder("int32", name="shape")
    p.node("RandomUniform", ["shape"], name="a", seed=1, seed2=2, dtype="float", T="int32")
    for n in (1, 2, 5, 1):
        p.step(fetch=["a"], feed={"shape": np.int32([n])})


def stateless(c):
    shape, seed = [2, 3], np.int64([7, 11])
    plain = {
        "StatelessRandomUniform": "exact",
        "StatelessRandomNormal": "rounding",
        "StatelessTruncatedNormal": "rounding",
    }
    for op, accuracy in plain.items():
        c.op(op, [shape, [7, 11]], accuracy=accuracy, dtype=c.dtypes(op, "dtype"))
        c.op(
            op, [[301], [3, 4]], "long", accuracy=accuracy, dtype=("half", "float", "double"), T="int32", Tseed="int32"
        )
        c.op(op, [np.zeros(0), [7, -11]], "scalar", accuracy=accuracy, dtype="float", T="int32", Tseed="int64")
        c.op(op, [[0], [7, 11]], "empty", accuracy=accuracy, dtype="float", T="int32", Tseed="int64")
        c.op(op, [shape, [7]], "one_seed", accuracy=accuracy, dtype="float", T="int32", Tseed="int64")
        c.op(op, [[-1], [7, 11]], "negative", accuracy=accuracy, dtype="float", T="int32", Tseed="int64")
    for dtype in ("int32", "int64"):
        c.op("StatelessRandomUniformInt", [shape, seed, lit(-5), lit(20)], dtype=dtype, T="int32", Tseed="int64")
        c.op(
            "StatelessRandomUniformInt",
            [shape, seed, lit(3), lit(3)],
            "empty_range",
            dtype=dtype,
            T="int32",
            Tseed="int64",
        )
    for dtype in ("int32", "int64", "uint32", "uint64"):
        c.op("StatelessRandomUniformFullInt", [shape, seed], dtype=dtype, T="int32", Tseed="int64")
    c.op(
        "StatelessMultinomial",
        [np.log([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-6]]), 6, seed],
        T=("float", "double"),
        Tseed="int64",
        output_dtype=("int32", "int64"),
    )

    c.op("StatelessRandomGetKeyCounter", [seed], Tseed=("int32", "int64"))
    c.op("StatelessRandomGetKeyCounter", [[2**40, -3]], "large", Tseed="int64")
    c.op("StatelessRandomGetKeyCounter", [[1]], "one_seed", Tseed="int64")
    c.op("StatelessRandomGetAlg", [])
    c.op("StatelessRandomGetKeyCounterAlg", [seed], Tseed=("int32", "int64"))
    key, counter = np.array([0x123456789ABCDEF], np.uint64), np.array([5, 9], np.uint64)
    # Philox is 1, ThreeFry 2, automatic choice 3.
    for alg in (1, 2, 3):
        for op, accuracy in (
            ("StatelessRandomUniformV2", "exact"),
            ("StatelessRandomNormalV2", "rounding"),
            ("StatelessTruncatedNormalV2", "rounding"),
        ):
            dtypes = c.dtypes(op, "dtype") if alg == 1 else ["float"]
            c.op(op, [shape, key, counter, alg], f"alg_{alg}", accuracy=accuracy, dtype=dtypes, Tshape="int32")
        for dtype in ("int32", "int64", "uint32", "uint64"):
            c.op(
                "StatelessRandomUniformFullIntV2", [shape, key, counter, alg], f"alg_{alg}", dtype=dtype, Tshape="int32"
            )
            c.op(
                "StatelessRandomUniformIntV2",
                [shape, key, counter, alg, lit(1), lit(20)],
                f"alg_{alg}",
                dtype=dtype,
                Tshape="int32",
            )
    c.op("StatelessRandomUniformV2", [shape, key, counter, 9], "unknown_alg", dtype="float", Tshape="int32")
    c.op("StatelessRandomUniformV2", [[0], key, counter, 0], "unknown_alg_not_used", dtype="float", Tshape="int32")
    c.op("StatelessRandomUniformV2", [shape, [1, 2], counter, 1], "long_key", dtype="float", Tshape="int32")
    c.op("StatelessRandomUniformV2", [[301], key, counter, 1], "long", dtype="float", Tshape="int32")
    c.op("StatelessShuffle", [iota(7), key, counter, 1], few=True)
    c.op("StatelessShuffle", [iota(4, 2), key, counter, 1], "rows", few=True)
    for tseed in ("int64", "uint64"):
        c.op("StatelessRandomUniformFullInt", [[2, 0], lit([6, 4])], "nothing", dtype="int64", T="int32", Tseed=tseed)
    c.op(
        "StatelessRandomPoisson",
        [[3, 0], [1, 2], lit([1.0, 2.0])],
        "rates_of_nothing",
        Rtype="double",
        dtype="int64",
        T="int32",
        Tseed="int32",
    )


def sampled(c):
    """Stateless samplers with parameters: several samples for each, broadcast, and values that fix the answer."""
    seed = np.int64([7, 11])
    for dtype in ("half", "bfloat16", "float", "double"):
        alpha = convert([0.5, 1.0, 2.0, 50.0], dtype)
        stateful(
            c,
            "StatelessRandomGammaV2",
            [np.int32([5, 4]), seed, alpha],
            dtype,
            1,
            "rounding",
            dtype=dtype,
            T="int32",
            Tseed="int64",
        )
        key, counter = np.array([0x123456789ABCDEF], np.uint64), np.array([5, 9], np.uint64)
        stateful(
            c,
            "StatelessRandomGammaV3",
            [np.int32([5, 4]), key, counter, np.int32(1), alpha],
            dtype,
            1,
            "rounding",
            dtype=dtype,
            shape_dtype="int32",
        )
    stateful(
        c,
        "StatelessRandomGammaV2",
        [np.int32([5, 3]), seed, np.float32([1.0, 2.0])],
        "mismatch",
        1,
        dtype="float",
        T="int32",
        Tseed="int64",
    )
    for rate in ("half", "float", "double", "int32", "int64"):
        stateful(
            c,
            "StatelessRandomPoisson",
            [np.int32([9, 3]), seed, convert([2, 9, 30], rate)],
            f"rate_{rate}",
            1,
            Rtype=rate,
            dtype="int64",
            T="int32",
            Tseed="int64",
        )
    for dtype in ("half", "float", "double", "int32", "int64"):
        stateful(
            c,
            "StatelessRandomPoisson",
            [np.int32([9, 2]), seed, np.float32([3.5, 300.0])],
            dtype,
            1,
            Rtype="float",
            dtype=dtype,
            T="int32",
            Tseed="int64",
        )
        stateful(
            c,
            "RandomPoissonV2",
            [np.int32([4]), np.float32([[3.5, 300.0]])],
            f"out_{dtype}",
            2,
            seed=7,
            seed2=11,
            S="int32",
            R="float",
            dtype=dtype,
        )
        stateful(
            c,
            "StatelessRandomBinomial",
            [np.int32([9, 3]), seed, np.float32([10, 20, 100]), np.float32([0.3, 0.9, 0.4])],
            f"out_{dtype}",
            1,
            S="int32",
            Tseed="int64",
            T="float",
            dtype=dtype,
        )
    for dtype in ("half", "float", "double"):
        counts, probs = convert([[4], [40], [400]], dtype), convert([0.0, 0.25, 0.75, 1.0], dtype)
        stateful(
            c,
            "StatelessRandomBinomial",
            [np.int32([6, 3, 4]), seed, counts, probs],
            dtype,
            1,
            S="int32",
            Tseed="int64",
            T=dtype,
            dtype="int64",
        )
        for name, low, high in (("around", -2.0, 2.0), ("narrow", 0.1, 0.3), ("tail", 2.0, 9.0), ("below", -9.0, -2.0)):
            bounds = [convert(v, dtype) for v in (0.0, 1.5, low, high)]
            stateful(
                c,
                "StatelessParameterizedTruncatedNormal",
                [np.int32([7]), seed, *bounds],
                f"{name}_{dtype}",
                1,
                "rounding",
                S="int32",
                Tseed="int64",
                dtype=dtype,
            )
            stateful(
                c,
                "ParameterizedTruncatedNormal",
                [np.int32([3, 4]), *bounds],
                f"{name}_{dtype}",
                2,
                "rounding",
                seed=7,
                seed2=11,
                T="int32",
                dtype=dtype,
            )
        means = convert([[0.0], [5.0]], dtype)
        parameters = [means, convert([1.0, 2.0, 0.5], dtype), convert(-1.0, dtype), convert(6.0, dtype)]
        stateful(
            c,
            "StatelessParameterizedTruncatedNormal",
            [np.int32([3, 2, 3]), seed, *parameters],
            f"broadcast_{dtype}",
            1,
            "rounding",
            S="int32",
            Tseed="int64",
            dtype=dtype,
        )
    for dtype in ("half", "bfloat16", "float", "double"):
        stateful(
            c,
            "RandomGamma",
            [np.int32([3]), convert([[1.0, 7.0]], dtype)],
            f"shape_above_one_{dtype}",
            2,
            "rounding",
            seed=7,
            seed2=11,
            S="int32",
            T=dtype,
        )


def generators(c):
    """Ops on a generator that a variable keeps: each use moves the state on."""

    def generator(name, accuracy=None, state=(1, 2, 3)):
        p = c.program(name, accuracy=accuracy)
        p.node("VarHandleOp", name="rng", dtype="int64", shape=[len(state)], shared_name="rng")
        p.const(np.int64(state), name="init")
        p.node("AssignVariableOp", ["rng", "init"], name="assign", dtype="int64")
        p.node("ReadVariableOp", ["rng"], name="state", dtype="int64")
        p.const(np.int64(1), name="philox")
        p.const(np.int32([2, 3]), name="shape")
        p.step(target=["assign"])
        return p

    def use(p, *nodes):
        for node in nodes:
            p.step(fetch=[node])
            p.step(fetch=["state"])

    for op in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal"):
        for dtype in c.dtypes(op, "dtype"):
            p = generator(f"{op}/{dtype}", "exact" if op == "StatefulUniform" else "rounding")
            p.node(op, ["rng", "philox", "shape"], name="y", dtype=dtype, shape_dtype="int32")
            use(p, "y", "y")
    for dtype in ("int32", "int64", "uint32", "uint64"):
        p = generator(f"StatefulUniformFullInt/{dtype}")
        p.node("StatefulUniformFullInt", ["rng", "philox", "shape"], name="y", dtype=dtype, shape_dtype="int32")
        use(p, "y", "y")
    for dtype in ("int32", "int64"):
        p = generator(f"StatefulUniformInt/{dtype}")
        p.const(convert(-3, dtype), name="low")
        p.const(convert(9, dtype), name="high")
        p.node(
            "StatefulUniformInt", ["rng", "philox", "shape", "low", "high"], name="y", dtype=dtype, shape_dtype="int32"
        )
        use(p, "y", "y")
    p = generator("StatefulRandomBinomial")
    p.const(np.float32([10, 100]), name="counts")
    p.const(np.float32(0.3), name="probs")
    p.const(np.int32([3, 2]), name="samples")
    p.node(
        "StatefulRandomBinomial",
        ["rng", "philox", "samples", "counts", "probs"],
        name="y",
        S="int32",
        T="float",
        dtype="int64",
    )
    # Once only: stock writes the state that follows into a buffer that others may share.
    p.step(fetch=["y"])
    p = generator("RngReadAndSkip", state=(-1, 2, 3))
    p.const(np.int32(1), name="alg")
    p.const(np.uint64(5), name="delta")
    p.node("RngReadAndSkip", ["rng", "alg", "delta"], name="y")
    use(p, "y", "y")
    p = generator("RngSkip")
    p.const(np.int64(5), name="delta")
    p.node("RngSkip", ["rng", "philox", "delta"], name="y")
    p.step(target=["y"])
    p.step(fetch=["state"])
    for name, state, algorithm in (
        ("short_state", (1, 2), 1),
        ("other_algorithm", (1, 2, 3), 2),
        ("unknown_algorithm", (1, 2, 3), 9),
    ):
        p = generator(f"StatefulUniform/{name}", state=state)
        p.const(np.int64(algorithm), name="algorithm")
        p.node("StatefulUniform", ["rng", "algorithm", "shape"], name="y", dtype="float", shape_dtype="int32")
        use(p, "y")


def cases(c):
    seeded(c)
    without_seeds(c)
    streams(c)
    stateless(c)
    sampled(c)
    generators(c)
