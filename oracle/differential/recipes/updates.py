"""Recipes for updates of variables: optimizers, scatters, assignments, all with plain numbers."""

import values
from recipes import Like, recipe
from recipes.arrays import strides
from recipes.indices import found, spot

_OPTIMIZERS = {
    "GradientDescent": "", "ProximalGradientDescent": "", "Momentum": "a", "KerasMomentum": "a", "Adagrad": "a", "AdagradV2": "a", "ProximalAdagrad": "a", "Adadelta": "ap",
    "AdagradDA": "ap", "Adam": "ap", "AdamWithAmsgrad": "app", "AdaMax": "ap", "AddSign": "a", "PowerSign": "a", "RMSProp": "pa", "CenteredRMSProp": "apa", "Ftrl": "pa",
    "FtrlV2": "pa",
}  # fmt: skip
_SCALARS = {
    "GradientDescent": ("alpha", "grad"), "ProximalGradientDescent": ("alpha", "l1", "l2", "grad"), "Momentum": ("lr", "grad", "momentum"), "KerasMomentum": ("lr", "grad", "momentum"),
    "Adagrad": ("lr", "grad"), "AdagradV2": ("lr", "epsilon", "grad"), "ProximalAdagrad": ("lr", "l1", "l2", "grad"), "Adadelta": ("lr", "rho", "epsilon", "grad"),
    "AdagradDA": ("grad", "lr", "l1", "l2", "step"), "Adam": ("beta", "beta", "lr", "beta", "beta", "epsilon", "grad"), "AdaMax": ("beta", "lr", "beta", "beta", "epsilon", "grad"),
    "AdamWithAmsgrad": ("beta", "beta", "lr", "beta", "beta", "epsilon", "grad"), "AddSign": ("lr", "alpha", "beta", "beta", "grad"), "PowerSign": ("lr", "alpha", "beta", "beta", "grad"),
    "RMSProp": ("lr", "rho", "momentum", "epsilon", "grad"), "CenteredRMSProp": ("lr", "rho", "momentum", "epsilon", "grad"), "Ftrl": ("grad", "lr", "l1", "l2", "power"),
    "FtrlV2": ("grad", "lr", "l1", "l2", "l2", "power"),
}  # fmt: skip
_CHOICES = {
    "lr": (0.1, 0.5, 1.0), "alpha": (0.1, 1.0), "l1": (0.0, 0.05, 1.0), "l2": (0.0, 0.1, 1.0), "momentum": (0.0, 0.9), "epsilon": (1e-3, 0.1), "rho": (0.8, 0.95), "beta": (0.9, 0.5),
    "power": (-0.5, -0.7, 0.0), "step": (1, 3),
}  # fmt: skip


def _optimizer(s, a):
    name = s.op.removeprefix("Resource").removeprefix("Sparse").removeprefix("Apply")
    is_sparse = "SparseApply" in s.op
    shape = s.shape(1 if is_sparse else 0)
    inputs = [Like(shape, values.arr)] + [Like(shape, values.pos if kind == "p" or name.startswith(("Adagrad", "ProximalAdagrad")) else values.arr) for kind in _OPTIMIZERS[name]]
    count = s.small(0, 5)
    for role in _SCALARS[name]:
        if role != "grad":
            inputs.append(s.pick(_CHOICES[role]))
        elif is_sparse:
            inputs += [Like((count, *shape[1:]), values.arr), found(s, shape, 1, (count,))[..., 0]]
        else:
            inputs.append(Like(shape, values.arr))
    return inputs


for _name in _OPTIMIZERS:
    recipe(*(f"{kind}{sparse}Apply{_name}" for kind in ("", "Resource") for sparse in ("", "Sparse")))(_optimizer)


@recipe(*(f"{kind}Scatter{what}" for kind in ("", "Resource") for what in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")))
def _scatter(s, a):
    shape, count = s.shape(1), s.pick([(), (1,), (3,), (2, 2), (0,)])
    updates = (*count, *shape[1:]) if s.chance(0.8) else ()
    return [Like(shape, values.arr), found(s, shape, 1, count)[..., 0], Like(updates, values.arr)]


@recipe(*(f"{kind}ScatterNd{what}" for kind in ("", "Resource") for what in ("Add", "Sub", "Min", "Max", "Update")))
def _scatter_nd(s, a):
    shape, depth, count = spot(s)
    a.pop("bad_indices_policy", None)
    return [Like(shape, values.arr), found(s, shape, depth, count), Like((*count, *shape[depth:]), values.arr)]


@recipe("Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def _assign(s, a):
    shape = s.shape()
    return [Like(shape, values.arr), Like(shape, values.arr)]


@recipe("StridedSliceAssign", "ResourceStridedSliceAssign")
def _assign_slice(s, a):
    shape, vectors, result = strides(s, a)
    return [Like(shape, values.arr), *vectors, Like(result, values.arr)]


@recipe("ResourceGather")
def _gather(s, a):
    shape = s.shape(1)
    a["batch_dims"] = 0
    return [Like(shape, values.arr), found(s, shape, 1, s.pick([(), (1,), (3,), (2, 2)]))[..., 0]]


@recipe("ResourceGatherNd")
def _gather_nd(s, a):
    shape, depth, count = spot(s)
    return [Like(shape, values.arr), found(s, shape, depth, count)]


@recipe("CountUpTo", "ResourceCountUpTo")
def _count_up_to(s, a):
    a["limit"] = s.small(0, 4)
    return [s.small(-1, 5)]
