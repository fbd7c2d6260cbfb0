"""Nearest centers of points, and first centers to begin with."""

from values import *

import numpy as np


def cases(c):
    points = lit([[0.0, 1.0], [2.0, 2.5], [-3.0, 0.5], [4.0, -4.0], [0.2, 0.9], [7.0, 7.0]])
    centers = lit([[0.0, 0.0], [3.0, 3.0], [-2.0, 1.0], [5.0, -5.0]])
    for k in (0, 1, 2, 4, 9):
        c.op("NearestNeighbors", [points, centers, np.int64(k)], f"k_{k}", accuracy="rounding")
    c.op("NearestNeighbors", [points, lit([[1.0, 1.0]] * 3), np.int64(2)], "equal", accuracy="rounding")
    c.op("NearestNeighbors", [empty(0, 2), centers, np.int64(1)], "no_points")
    c.op("NearestNeighbors", [points, empty(0, 2), np.int64(1)], "no_centers")
    c.op("NearestNeighbors", [points, arr(2, 3), np.int64(1)], "widths")
    c.op("NearestNeighbors", [arr(3), centers, np.int64(1)], "vector")
    for seed in range(6):
        for retries in (0, 3, -1):
            inputs = [points, np.int64(3), np.int64(seed), np.int64(retries)]
            c.op("KmeansPlusPlusInitialization", inputs, f"seed_{seed}_{retries}")
        c.op("KMC2ChainInitialization", [pos(9), np.int64(seed)], f"seed_{seed}")
    c.op("KmeansPlusPlusInitialization", [points, np.int64(7), np.int64(1), np.int64(0)], "too_many")
    c.op("KmeansPlusPlusInitialization", [points, np.int64(0), np.int64(1), np.int64(0)], "none")
    c.op("KmeansPlusPlusInitialization", [points, np.int64(6), np.int64(1), np.int64(2)], "all")
    c.op("KMC2ChainInitialization", [empty(0), np.int64(1)], "empty")
    c.op("KMC2ChainInitialization", [arr(2, 2), np.int64(1)], "rank")
