"""The fused cell of a gated recurrent unit."""

import numpy as np

rng = np.random.RandomState(6)


def draw(*shape):
    return rng.uniform(-1, 1, shape).round(2).astype(np.float32)


def cases(c):
    c.accuracy("rounding")
    batch, inputs, cells = 2, 3, 4
    given = [
        draw(batch, inputs),
        draw(batch, cells),
        draw(inputs + cells, 2 * cells),
        draw(inputs + cells, cells),
        draw(2 * cells),
        draw(cells),
    ]
    made = [np.abs(draw(batch, cells)), np.abs(draw(batch, cells)), draw(batch, cells), draw(batch, cells)]
    c.op("GRUBlockCell", given)
    c.op("GRUBlockCell", [given[0][:0], given[1][:0], *given[2:]], "empty")
    c.op("GRUBlockCellGrad", given + made)
    wrong = (
        ("batch", 1, given[1][:1], "h_prev.dims(0) != batch_size"),
        ("gates", 2, given[2][:5], "w_ru.dim_size(0) != input_size + cell_size"),
        ("weights", 3, given[3][:, :2], "w_c.dim_size(1) != cell_size"),
        ("bias", 4, given[4][:4], "b_ru.dim_size(0) != cell_size * 2"),
        ("rank", 5, given[0], "Rank of b_c must be 1, got 2"),
    )
    for name, at, value, message in wrong:
        changed = given[:at] + [value] + given[at + 1 :]
        c.op("GRUBlockCell", changed, name, message=message)
        c.op("GRUBlockCellGrad", changed + made, name, message=message)
    c.op("GRUBlockCellGrad", given + made[:3] + [made[3][:1]], "gradient", message="d_h.dims(0) != batch_size")
