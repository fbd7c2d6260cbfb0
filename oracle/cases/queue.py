"""Queues: programs that never wait."""

from values import *

import numpy as np


def queue(c, name, op="FIFOQueueV2", types=("float",), **attrs):
    p = c.program(f"{op}/{name}")
    p.node(op, name="q", component_types=list(types), **attrs)
    for i, dtype in enumerate(types):
        p.placeholder(dtype, name=f"x{i}")
    inputs = [f"x{i}" for i in range(len(types))]
    p.node("QueueEnqueueV2", ["q", *inputs], name="put", Tcomponents=list(types))
    p.node("QueueEnqueueManyV2", ["q", *inputs], name="put_many", Tcomponents=list(types))
    p.node("QueueDequeueV2", ["q"], name="take", component_types=list(types))
    p.placeholder("int32", name="n")
    p.node("QueueDequeueManyV2", ["q", "n"], name="take_many", component_types=list(types))
    p.node("QueueDequeueUpToV2", ["q", "n"], name="take_up_to", component_types=list(types))
    p.node("QueueSizeV2", ["q"], name="size")
    p.node("QueueIsClosedV2", ["q"], name="closed")
    p.node("QueueCloseV2", ["q"], name="close")
    return p


def first_generation(c):
    """Queues whose handle is a reference to a string."""
    for op in ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue"):
        p = c.program(f"{op}/handle_by_reference")
        attrs = {"seed": 5, "seed2": 6} if op == "RandomShuffleQueue" else {}
        p.node(op, name="q", component_types=["float"], shapes=[[]], **attrs)
        p.placeholder("float", name="x")
        p.placeholder("int32", name="n")
        p.node("QueueEnqueue", ["q", "x"], name="put", Tcomponents=["float"])
        p.node("QueueEnqueueMany", ["q", "x"], name="put_many", Tcomponents=["float"])
        p.node("QueueDequeue", ["q"], name="take", component_types=["float"])
        p.node("QueueDequeueMany", ["q", "n"], name="take_many", component_types=["float"])
        p.node("QueueDequeueUpTo", ["q", "n"], name="take_up_to", component_types=["float"])
        p.node("QueueSize", ["q"], name="size")
        p.node("QueueIsClosed", ["q"], name="closed")
        p.node("QueueClose", ["q"], name="close")
        p.step(target=["put"], feed={"x": np.float32(1)})
        p.step(target=["put_many"], feed={"x": np.float32([2, 3, 4, 5])})
        p.step(fetch=["size", "closed"])
        p.step(fetch=["take"])
        p.step(fetch=["take_many"], feed={"n": np.int32(2)})
        p.step(target=["close"])
        p.step(fetch=["take_up_to"], feed={"n": np.int32(5)})
        p.step(fetch=["closed"])
        p.step(fetch=["take"])
    p = c.program("PriorityQueue/handle_by_reference")
    p.node("PriorityQueue", name="q", component_types=["string"], shapes=[[]])
    p.placeholder("int64", name="k")
    p.placeholder("string", name="s")
    p.node("QueueEnqueue", ["q", "k", "s"], name="put", Tcomponents=["int64", "string"])
    p.node("QueueDequeue", ["q"], name="take", component_types=["int64", "string"])
    for key, text in ((5, "five"), (1, "one")):
        p.step(target=["put"], feed={"k": np.int64(key), "s": convert(text, "string")})
    for _ in range(2):
        p.step(fetch=["take:0", "take:1"])


def staging(c):
    for dtype in ("float", "string"):
        p = c.program(f"Stage/{dtype}")
        p.placeholder(dtype, name="x")
        shared = {"dtypes": [dtype], "shared_name": "area"}
        p.node("Stage", ["x"], name="put", **shared)
        p.node("Unstage", name="take", **shared)
        p.const(np.int32(1), name="index")
        p.node("StagePeek", ["index"], name="peek", **shared)
        p.node("StageSize", name="size", **shared)
        p.node("StageClear", name="clear", **shared)
        for seed in range(3):
            p.step(target=["put"], feed={"x": arr(2, seed=seed)(dtype)})
        p.step(fetch=["peek", "size"])
        p.step(fetch=["take"])
        p.step(fetch=["size"])
        p.step(target=["clear"])
        p.step(fetch=["size"])


def shared(c):
    """Queues of one shared name must be of one kind; the sentences name what differs."""
    kinds = ("FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue")
    attrs = {"component_types": ["float"], "shapes": [[2]], "capacity": 3}
    random = attrs | {"min_after_dequeue": 1, "seed": 1, "seed2": 2}
    changes = {
        "same": {},
        "capacity": {"capacity": 4},
        "unbounded": {"capacity": -1},
        "types": {"component_types": ["int32"]},
        "components": {"component_types": ["float", "float"], "shapes": [[2], [2]]},
        "shapes": {"shapes": [[3]]},
        "rank": {"shapes": [[2, 1]]},
    }
    pairs = [(kind, kind, name, attrs, attrs | change) for kind in kinds for name, change in changes.items()]
    pairs += [(kind, other, f"as_{other}", attrs, attrs) for kind in kinds for other in kinds if kind != other]
    pairs += [("FIFOQueue", "FIFOQueue", "without_shapes", attrs, attrs | {"shapes": []})]
    pairs += [("PaddingFIFOQueue", "PaddingFIFOQueue", "shapes_that_may_be_equal", attrs | {"shapes": [[None]]}, attrs)]
    pairs += [
        ("RandomShuffleQueue", "RandomShuffleQueue", name, first, second)
        for name, first, second in [
            ("kept", random, random | {"min_after_dequeue": 2}),
            ("seed", random, random | {"seed": 3}),
            ("seed2", random, random | {"seed2": 3}),
            ("seeds_left_open", random, random | {"seed": 0, "seed2": 0}),
            ("seeds_chosen_later", random | {"seed": 0, "seed2": 0}, random),
        ]
    ]
    for kind, other, name, first, second in pairs:
        p = c.program(f"{kind}V2/shared/{name}")
        p.node(f"{kind}V2", name="q", shared_name="s", **first)
        p.node(f"{other}V2", name="r", shared_name="s", **second)
        p.node("QueueSizeV2", ["r"], name="size")
        p.step(target=["q"])
        p.step(target=["r"], message=SENTENCE)
        p.step(fetch=["size"], message=SENTENCE)
    for kind in kinds:
        for name, change in {
            "counts": {"shapes": [[2], [3]]},
            "open_shape": {"shapes": [[None]]},
            "open_rank": {"shapes": [None]},
        }.items():
            p = c.program(f"{kind}V2/made_with_{name}")
            p.node(f"{kind}V2", name="q", **(attrs | change))
            p.step(target=["q"], message=SENTENCE)
    p = c.program("PaddingFIFOQueueV2/made_without_shapes")
    p.node("PaddingFIFOQueueV2", name="q", **(attrs | {"shapes": []}))
    p.step(target=["q"], message=SENTENCE)
    for name, change in {"negative": {"min_after_dequeue": -1}, "all": {"min_after_dequeue": 3}}.items():
        p = c.program(f"RandomShuffleQueueV2/keeps_{name}")
        p.node("RandomShuffleQueueV2", name="q", **(attrs | change))
        p.step(target=["q"], message=SENTENCE)


def priorities(c):
    """Equal priorities leave as stock's heap has them."""
    p = queue(c, "equal_priorities", op="PriorityQueueV2", types=("int64",), shapes=[[]])
    p.placeholder("int64", name="key")
    p.node("QueueEnqueueManyV2", ["q", "key", "x0"], name="put_keys", Tcomponents=["int64", "int64"])
    p.node("QueueDequeueManyV2", ["q", "n"], name="take_keys", component_types=["int64", "int64"])
    drawn = np.random.default_rng(7)
    for start in (0, 20, 40):
        p.step(target=["put_keys"], feed={"key": drawn.integers(0, 4, 20), "x0": np.arange(start, start + 20)})
        p.step(fetch=["take_keys:0", "take_keys:1"], feed={"n": np.int32(7)})
    p.step(fetch=["take_keys:0", "take_keys:1"], feed={"n": np.int32(39)})


def cases(c):
    first_generation(c)
    staging(c)
    shared(c)
    priorities(c)
    for dtype in ("half", "float", "int32", "int64", "bool", "complex64", "string"):
        p = queue(c, f"one_by_one/{dtype}", types=(dtype,))
        for seed in range(3):
            p.step(target=["put"], feed={"x0": arr(2, seed=seed)(dtype)})
        p.step(fetch=["size"])
        for _ in range(3):
            p.step(fetch=["take"])
        p.step(fetch=["size", "closed"])
    p = queue(c, "two_components", types=("float", "string"))
    p.step(target=["put"], feed={"x0": np.float32(1), "x1": lit(["a", "b"])("string")})
    p.step(fetch=["take:0", "take:1"])
    p = queue(c, "many", types=("float", "int64"), shapes=[[2], []])
    p.step(target=["put_many"], feed={"x0": arr(3, 2)("float"), "x1": np.int64([1, 2, 3])})
    p.step(fetch=["take_many:0", "take_many:1"], feed={"n": np.int32(2)})
    p.step(fetch=["size"])
    p.step(fetch=["take_up_to:0"], feed={"n": np.int32(1)})
    p.step(fetch=["take_many:0"], feed={"n": np.int32(0)})
    p.step(fetch=["take_many:0"], feed={"n": np.int32(-1)})
    p.step(target=["put_many"], feed={"x0": arr(0, 2)("float"), "x1": np.zeros(0, np.int64)})
    p.step(fetch=["size"])
    p.step(target=["put_many"], feed={"x0": arr(2, 2)("float"), "x1": np.int64([1])})
    p.step(target=["put_many"], feed={"x0": arr(2, 3)("float"), "x1": np.int64([1, 2])})
    p.step(target=["put"], feed={"x0": arr(3)("float"), "x1": np.int64(1)})
    p = queue(c, "many_needs_shapes")
    p.step(target=["put"], feed={"x0": np.float32(1)})
    p.step(fetch=["take_many"], feed={"n": np.int32(1)})
    p.step(fetch=["take_up_to"], feed={"n": np.int32(1)})
    p = queue(c, "close_then_drain", shapes=[[]])
    p.step(target=["put_many"], feed={"x0": np.float32([1, 2, 3])})
    p.step(target=["close"])
    p.step(fetch=["closed", "size"])
    p.step(target=["put"], feed={"x0": np.float32(1)}, message="is closed")
    p.step(fetch=["take"])
    p.step(fetch=["take_many"], feed={"n": np.int32(3)}, message="insufficient elements")
    p.step(fetch=["take_up_to"], feed={"n": np.int32(3)})
    p.step(fetch=["take"], message="is closed and has insufficient elements")
    p.step(fetch=["take_up_to"], feed={"n": np.int32(3)})
    p.step(target=["close"])
    p = queue(c, "closed_and_then_cancelled", shapes=[[]])
    p.node("QueueCloseV2", ["q"], name="cancel", cancel_pending_enqueues=True)
    p.step(target=["close"])
    p.step(target=["cancel"])
    p.step(target=["cancel"])
    p.step(target=["close"], message="is already closed")
    p = queue(c, "shared", capacity=2, shared_name="s")
    p.node("FIFOQueueV2", name="q2", component_types=["float"], capacity=2, shared_name="s")
    p.node("QueueSizeV2", ["q2"], name="size2")
    p.step(target=["put"], feed={"x0": np.float32(1)})
    p.step(fetch=["size2"])
    p = queue(c, "shared_with_other_types", shared_name="s")
    p.node("FIFOQueueV2", name="q2", component_types=["int32"], shared_name="s")
    p.node("QueueSizeV2", ["q2"], name="size2")
    p.step(fetch=["size"])
    p.step(fetch=["size2"])
    p = queue(c, "shared_with_other_capacity", shared_name="s", capacity=3)
    p.node("FIFOQueueV2", name="q2", component_types=["float"], shared_name="s", capacity=4)
    p.node("QueueSizeV2", ["q2"], name="size2")
    p.step(fetch=["size"])
    p.step(fetch=["size2"])
    p = queue(c, "wrong_types_dequeued")
    p.node("QueueDequeueV2", ["q"], name="bad", component_types=["int32"])
    p.step(target=["put"], feed={"x0": np.float32(1)})
    p.step(fetch=["bad"])
    p = queue(c, "negative_capacity_is_unbounded", capacity=-1)
    for i in range(5):
        p.step(target=["put"], feed={"x0": np.float32(i)})
    p.step(fetch=["size"])

    p = c.program("PriorityQueueV2/order")
    p.node("PriorityQueueV2", name="q", component_types=["string"], shapes=[[]])
    p.placeholder("int64", name="k")
    p.placeholder("string", name="s")
    p.node("QueueEnqueueV2", ["q", "k", "s"], name="put", Tcomponents=["int64", "string"])
    p.node("QueueDequeueV2", ["q"], name="take", component_types=["int64", "string"])
    for key, text in ((5, "five"), (1, "one"), (3, "three")):
        p.step(target=["put"], feed={"k": np.int64(key), "s": convert(text, "string")})
    for _ in range(3):
        p.step(fetch=["take:0", "take:1"])
    p = queue(c, "pads", op="PaddingFIFOQueueV2", types=("float", "string"), shapes=[[None, 2], [None]])
    p.step(target=["put"], feed={"x0": arr(1, 2)("float"), "x1": lit(["a", "b"])("string")})
    p.step(target=["put"], feed={"x0": arr(3, 2)("float"), "x1": lit(["c"])("string")})
    p.step(fetch=["take_many:0", "take_many:1"], feed={"n": np.int32(2)})
    p.step(target=["put"], feed={"x0": arr(3, 3)("float"), "x1": lit(["c"])("string")})
    p = queue(c, "seeded", op="RandomShuffleQueueV2", shapes=[[]], seed=5, seed2=6, min_after_dequeue=2)
    p.step(target=["put_many"], feed={"x0": np.float32(range(8))})
    p.step(fetch=["take_many"], feed={"n": np.int32(6)})
    p.step(target=["close"])
    p.step(fetch=["take_up_to"], feed={"n": np.int32(6)})
    p = queue(c, "min_too_large", op="RandomShuffleQueueV2", shapes=[[]], capacity=2, min_after_dequeue=2)
    p.step(fetch=["size"])
