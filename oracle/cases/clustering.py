"""Clusters of points."""

import numpy as np

rng = np.random.RandomState(8)
POINTS = rng.uniform(-5, 5, (12, 3)).round(1).astype(np.float32)


def cases(c):
    c.accuracy("rounding")
    op = "NearestNeighbors"
    centers = POINTS[::3] + np.float32(0.25)
    for k in (0, 1, 2, 9):
        c.op(op, [POINTS, centers, np.int64(k)], f"k_{k}")
    c.op(op, [POINTS, centers[:0], np.int64(1)], "no_centers")
    c.op(op, [POINTS[:0], centers, np.int64(1)], "no_points", message="Expected points.rows() > 0.")
    message = "Expected point_dimensions == center_dimensions: 3 vs 2."
    c.op(op, [POINTS, centers[:, :2], np.int64(1)], "dimensions", message=message)
    c.op(op, [POINTS[0], centers, np.int64(1)], "vector", message="Input points should be a matrix.")
    op = "KmeansPlusPlusInitialization"
    for seed in (0, 7, 123456789):
        for retries in (0, 3, -1):
            c.op(op, [POINTS, np.int64(4), np.int64(seed), np.int64(retries)], f"seed_{seed}_retries_{retries}")
    c.op(op, [POINTS, np.int64(12), np.int64(1), np.int64(0)], "all")
    c.op(op, [POINTS, np.int64(13), np.int64(1), np.int64(0)], "too_many", message="13 vs 12.")
    c.op(op, [POINTS, np.int64(0), np.int64(1), np.int64(0)], "none", message="Expected num_to_sample > 0.")
    op = "KMC2ChainInitialization"
    for seed in (0, 5, 77):
        c.op(op, [np.float32([1, 4, 2, 0, 3, 9, 1]), np.int64(seed)], f"seed_{seed}")
    c.op(op, [np.zeros(0, np.float32), np.int64(1)], "empty", message="Expected distances_tensor.size() > 0.")
