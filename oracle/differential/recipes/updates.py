"""Recipes for updates of variables: optimizers, scatters, assignments."""

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


def _numbers(s, shape, plain=values.arr):
    """A tensor of plain numbers, or now and then of special ones."""
    is_special = s.chance(0.1) and not s.plain
    return Like(shape, values.special if is_special else plain)


def _optimizer(s, a):
    name = s.op.removeprefix("Resource").removeprefix("Sparse").removeprefix("Apply")
    is_sparse = "SparseApply" in s.op
    shape = s.shape(1 if is_sparse else 0)
    inputs = [_numbers(s, shape)]
    for kind in _OPTIMIZERS[name]:
        inputs.append(
            _numbers(
                s, shape, values.pos if kind == "p" or name.startswith(("Adagrad", "ProximalAdagrad")) else values.arr
            )
        )
    count = s.small(0, 5)
    for role in _SCALARS[name]:
        if role != "grad":
            inputs.append(s.pick(_CHOICES[role]))
        elif is_sparse:
            inputs += [_numbers(s, (count, *shape[1:])), found(s, shape, 1, (count,))[..., 0]]
        else:
            inputs.append(_numbers(s, shape))
    return inputs


for _name in _OPTIMIZERS:
    recipe(*(f"{kind}{sparse}Apply{_name}" for kind in ("", "Resource") for sparse in ("", "Sparse")))(_optimizer)


@recipe(
    *(
        f"{kind}Scatter{what}"
        for kind in ("", "Resource")
        for what in ("Add", "Sub", "Mul", "Div", "Min", "Max", "Update")
    )
)
def _scatter(s, a):
    shape, count = s.shape(1), s.pick([(), (1,), (3,), (2, 2), (0,)])
    updates = (*count, *shape[1:]) if s.chance(0.8) else ()
    return [_numbers(s, shape), found(s, shape, 1, count)[..., 0], _numbers(s, updates)]


@recipe(*(f"{kind}ScatterNd{what}" for kind in ("", "Resource") for what in ("Add", "Sub", "Min", "Max", "Update")))
def _scatter_nd(s, a):
    shape, depth, count = spot(s)
    a.pop("bad_indices_policy", None)
    return [_numbers(s, shape), found(s, shape, depth, count), _numbers(s, (*count, *shape[depth:]))]


@recipe("Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
def _assign(s, a):
    shape = s.shape()
    return [_numbers(s, shape), _numbers(s, shape)]


@recipe("StridedSliceAssign", "ResourceStridedSliceAssign")
def _assign_slice(s, a):
    shape, vectors, result = strides(s, a)
    return [_numbers(s, shape), *vectors, _numbers(s, result)]


@recipe("ResourceGather")
def _gather(s, a):
    shape = s.shape(1)
    a["batch_dims"] = 0
    return [_numbers(s, shape), found(s, shape, 1, s.pick([(), (1,), (3,), (2, 2)]))[..., 0]]


@recipe("ResourceGatherNd")
def _gather_nd(s, a):
    shape, depth, count = spot(s)
    return [_numbers(s, shape), found(s, shape, depth, count)]


@recipe("CountUpTo", "ResourceCountUpTo")
def _count_up_to(s, a):
    a["limit"] = s.small(0, 4)
    return [s.small(-1, 5)]
