"""Special functions."""

from values import *

import numpy as np

ONE = [
    "BesselI0e",
    "BesselI1e",
    "BesselI0",
    "BesselI1",
    "BesselJ0",
    "BesselJ1",
    "BesselK0",
    "BesselK0e",
    "BesselK1",
    "BesselK1e",
]
ONE += ["BesselY0", "BesselY1", "Dawsn", "Expint", "FresnelCos", "FresnelSin", "Spence"]


def cases(c):
    c.accuracy("rounding")
    for op in ONE:
        c.op(op, [pos(2, 3)])
        c.op(op, [empty(0)], "empty", few=True)
        points = [0.0, 0.5, 1.0, 2.0, 10.0, -1.0, 90.0, np.inf, np.nan]
        c.op(op, [lit(points)], "points", types=("float", "double"))
        if op[-2:] not in ("J0", "J1", "Y0", "Y1"):
            ends = Template(
                lambda dtype: np.array([np.finfo(NUMPY[dtype]).tiny, np.finfo(NUMPY[dtype]).max], NUMPY[dtype])
            )
            c.op(op, [ends], "ends", types=("float", "double"))
    c.op("Zeta", [lit([1.12, 2.0, 1.12]), lit([3.4028235e38, 1e30, 1e30])], "far", types=["float", "double"])
    for op in ("Igamma", "Igammac", "IgammaGradA", "Zeta", "Polygamma"):
        c.op(op, [pos(2, 3), pos(2, 3, seed=1)])
        c.op(op, [pos(2, 1), pos(3, seed=1)], "broadcast", few=True)
        c.op(
            op,
            [lit([0.0, 1.0, 2.0, -1.0, 3.0, 0.5]), lit([1.0, 0.0, 3.0, 1.0, 50.0, 0.25])],
            "points",
            types=("float", "double"),
        )
        c.op(op, [pos(2), pos(3)], "mismatch", few=True)
    grid = np.meshgrid([0.0, 1.0, 2.0, 10.0, -1.0, 0.5, -2.5, np.inf, np.nan], [0.0, 1.5, 50.0, -1.0, np.inf, np.nan])
    for op in ("Igamma", "Igammac", "IgammaGradA", "Zeta", "RandomGammaGrad", "Polygamma"):
        # Left of zero the terms of the series cancel, in single precision to noise.
        c.op(op, [lit(grid[0]), lit(grid[1])], "grid", types=("float", "double"))
    c.op("RandomGammaGrad", [lit([50.0, 90.0]), lit([1.0, 1.0])], "density_vanishes", types=("float", "double"))
    # Near their shapes, the logarithms of these densities are small differences of large numbers.
    shapes = [8.0, 9.5, 20.25, 35.0, 50.5, 60.0, 66.6, 71.9, 72.4, 74.0]
    for op in ("Igamma", "Igammac", "IgammaGradA", "RandomGammaGrad"):
        c.op(op, [lit(shapes), lit([shape * 0.9 for shape in shapes])], "below", types=("float", "double"))
        c.op(op, [lit(shapes), lit([shape * 1.1 for shape in shapes])], "above", types=("float", "double"))
    large = [1e3, 7400.0, 2e4, 1e5]
    for op in ("IgammaGradA", "RandomGammaGrad"):
        c.op(op, [lit(large), lit(large)], "large", types=("double",))
        c.op(op, [lit(large), lit([shape * 1.01 for shape in large])], "large_above", types=("double",))
    c.op("Betainc", [pos(4), pos(4, seed=1), lit([0.0, 0.25, 0.5, 1.0])])
    c.op("Betainc", [lit(2.0), lit(3.0), lit([0.1, 0.9])], "scalars", few=True)
    nan = float("nan")
    parameters = lit([1.0, nan, 1.0, nan, 1.0, nan, 0.0, nan, nan])
    others = lit([nan, 1.0, nan, nan, nan, 1.0, nan, 0.0, 1.0])
    c.op(
        "Betainc",
        [parameters, others, lit([0.0, 0.0, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 2.0])],
        "nan",
        types=("float", "double"),
    )
    c.op("Betainc", [pos(2), pos(3), lit(0.5)], "mismatch", few=True)
    c.op("RandomGammaGrad", [pos(3), pos(3, seed=1)])
    c.op("Cross", [arr(2, 3), arr(2, 3, seed=1)])
    c.op("Cross", [arr(2, 2), arr(2, 2)], "not_three", few=True)
    c.op("Cross", [arr(2, 3), arr(3)], "mismatch", few=True)
