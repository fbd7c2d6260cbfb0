"""Fused cells of long short-term memory."""

from values import *

import numpy as np

rng = np.random.RandomState(5)
TIME, BATCH, INPUT, CELLS = 3, 2, 2, 3
TYPES = ("half", "float")


def draw(*shape):
    """Quarters, whose products with each other add up without rounding: stock sums halves in halves."""
    return rng.randint(-4, 5, shape) / 4


X, CS, H = draw(TIME, BATCH, INPUT), draw(BATCH, CELLS), draw(BATCH, CELLS)
W, B = draw(INPUT + CELLS, 4 * CELLS), draw(4 * CELLS)
PEEPHOLES = [draw(CELLS), draw(CELLS), draw(CELLS)]
STATES = [draw(TIME, BATCH, CELLS) for _ in range(9)]
SIGMOIDS = [0, 2, 3]


def states(of):
    """States of a step or of all: those after a sigmoid are positive."""
    return [np.abs(of(s)) if i in SIGMOIDS else of(s) for i, s in enumerate(STATES)]


def cell(c):
    inputs = [X[0], CS, H, W, *PEEPHOLES, B]
    c.op("LSTMBlockCell", inputs, types=TYPES)
    c.op("LSTMBlockCell", inputs, "peephole", types=TYPES, use_peephole=True)
    c.op("LSTMBlockCell", inputs, "settings", types=TYPES, forget_bias=-0.5, cell_clip=0.3)
    c.op("LSTMBlockCell", inputs, "unbounded", types=["float"], cell_clip=-1.0)
    for name, at, value in (
        ("batch", 1, CS[:1]),
        ("cells", 2, H[:, :2]),
        ("rows", 3, W[:4]),
        ("columns", 3, W[:, :8]),
        ("bias", 7, B[:4]),
    ):
        wrong = inputs[:at] + [value] + inputs[at + 1 :]
        c.op("LSTMBlockCell", wrong, name, types=["float"], message="!=")
    none = [X[0, :0], CS[:0], H[:0], *inputs[3:]]
    c.op("LSTMBlockCell", none, "empty", types=["float"], message="cs_prev_tensor is empty")
    *made, _, cs_grad, h_grad = states(lambda s: s[0])
    grad = [*inputs, *made, cs_grad, h_grad]
    c.op("LSTMBlockCellGrad", grad, types=TYPES, use_peephole=False)
    c.op("LSTMBlockCellGrad", grad, "peephole", types=TYPES, use_peephole=True)
    c.op("LSTMBlockCellGrad", grad[:-1] + [h_grad[:1]], "batch", types=["float"], use_peephole=False)


def block(c):
    inputs = [np.int64(TIME), X, CS, H, W, *PEEPHOLES, B]
    for op in ("BlockLSTM", "BlockLSTMV2"):
        c.op(op, inputs, types=["float"])
        one = [np.int64(1), X[:1], *inputs[2:]]
        c.op(op, one, "one_step", types=TYPES)
        c.op(op, one, "peephole", types=TYPES, use_peephole=True, cell_clip=0.5)
        c.op(op, inputs, "peepholes", types=["float"], use_peephole=True, cell_clip=0.5)
        # A number of steps that is negative, or larger than there are, ends stock's process.
        c.op(op, inputs[:4] + [W[:4]] + inputs[5:], "rows", types=["float"], message="w.dim_size(0) != input_size +")
        c.op(op, inputs[:8] + [B[:11]], "divisible", types=["float"])
        # Of steps that are not taken, only the state and the output are defined.
        p = c.program(f"{op}/short")
        names = [p.const(value if i == 0 else np.float32(value), name=f"x{i}") for i, value in enumerate(inputs)]
        names[0] = p.const(np.int64(2), name="steps")
        p.node(op, names, name="y", T="float")
        p.step(fetch=["y:1", "y:6"])
        grad = [*inputs, *states(lambda s: s)]
        for use_peephole in (False, True):
            name = "peephole" if use_peephole else ""
            c.op(op.replace("LSTM", "LSTMGrad"), grad, name, types=["float"], use_peephole=use_peephole)
        short = [np.int64(1), *grad[1:]]
        c.op(op.replace("LSTM", "LSTMGrad"), short, "short", types=["float"], use_peephole=True)
        c.op(op.replace("LSTM", "LSTMGrad"), [np.int64(0), *grad[1:]], "none", types=["float"], use_peephole=True)


def cases(c):
    c.accuracy("rounding")
    cell(c)
    block(c)
