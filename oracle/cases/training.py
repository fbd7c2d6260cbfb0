"""Optimizer updates, dense and sparse, on ref and resource variables."""

from values import *

import numpy as np

# For each optimizer: slot variables, then scalars before and after the gradient in argument order.
DENSE = {
    "GradientDescent": ([], ["alpha"], [], {}),
    "Momentum": (["accum"], ["lr"], ["momentum"], {"use_nesterov": (False, True)}),
    "Adagrad": (["accum"], ["lr"], [], {"update_slots": (True, False)}),
    "AdagradV2": (["accum"], ["lr", "epsilon"], [], {"update_slots": (True, False)}),
    "Adam": (
        ["m", "v"],
        ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"],
        [],
        {"use_nesterov": (False, True)},
    ),
    "AdaMax": (["m", "v"], ["beta1_power", "lr", "beta1", "beta2", "epsilon"], [], {}),
    "RMSProp": (["ms", "mom"], ["lr", "rho", "momentum", "epsilon"], [], {}),
    "CenteredRMSProp": (["mg", "ms", "mom"], ["lr", "rho", "momentum", "epsilon"], [], {}),
    "Adadelta": (["accum", "accum_update"], ["lr", "rho", "epsilon"], [], {}),
    "Ftrl": (["accum", "linear"], None, ["lr", "l1", "l2", "lr_power"], {"multiply_linear_by_lr": (False, True)}),
    "FtrlV2": (
        ["accum", "linear"],
        None,
        ["lr", "l1", "l2", "l2_shrinkage", "lr_power"],
        {"multiply_linear_by_lr": (False, True)},
    ),
    "ProximalGradientDescent": ([], ["alpha", "l1", "l2"], [], {}),
    "ProximalAdagrad": (["accum"], ["lr", "l1", "l2"], [], {}),
    "AddSign": (["m"], ["lr", "alpha", "sign_decay", "beta"], [], {}),
    "PowerSign": (["m"], ["lr", "logbase", "sign_decay", "beta"], [], {}),
    "AdamWithAmsgrad": (["m", "v", "vhat"], ["beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"], [], {}),
    "AdagradDA": (["accum", "accum_squared"], None, ["lr", "l1", "l2", "global_step"], {}),
    "KerasMomentum": (["accum"], ["lr"], ["momentum"], {"use_nesterov": (False, True)}),
}
SCALARS = {
    "lr": 0.1,
    "alpha": 0.1,
    "momentum": 0.9,
    "epsilon": 1e-3,
    "beta1_power": 0.9,
    "beta2_power": 0.99,
    "beta1": 0.9,
    "beta2": 0.99,
}
SCALARS |= {
    "rho": 0.8,
    "l1": 0.05,
    "l2": 0.1,
    "l2_shrinkage": 0.02,
    "lr_power": -0.5,
    "logbase": 1.0,
    "sign_decay": 0.9,
    "beta": 0.9,
}


def update(
    c,
    op,
    name,
    dtype,
    slots,
    before,
    after,
    attrs,
    shape=(2, 2),
    grad_shape=None,
    indices=None,
    initialize=True,
    scalars=None,
    is_special=False,
):
    """A program that runs `op` several times and then reads every variable. With special values, once."""
    resource = op.startswith("Resource")
    p = c.program("/".join(filter(None, [op, name, dtype])), accuracy="rounding")
    values = {"var": arr(*shape)} | {slot: pos(*shape, seed=3 + i) for i, slot in enumerate(slots)}
    specials = [*values, "grad"] if is_special else []
    if is_special and dtype.startswith("complex"):
        # What products of complex infinities are depends on where they lie in a vector register.
        specials = slots[:1]
    for i, variable in enumerate(values):
        if variable in specials:
            values[variable] = special(*shape, seed=20 + i)
    assigns, reads = [], []
    for variable, value in values.items():
        p.const(value(dtype), name=f"{variable}/init")
        if resource:
            p.node("VarHandleOp", name=variable, dtype=dtype, shape=list(shape), shared_name=variable)
            assigns.append(
                p.node("AssignVariableOp", [variable, f"{variable}/init"], name=f"{variable}/assign", dtype=dtype)
            )
            reads.append(p.node("ReadVariableOp", [variable], name=f"{variable}/read", dtype=dtype))
        else:
            p.node("VariableV2", name=variable, dtype=dtype, shape=list(shape))
            assigns.append(p.node("Assign", [variable, f"{variable}/init"], name=f"{variable}/assign", T=dtype))
            reads.append(p.node("Identity", [variable], name=f"{variable}/read", T=dtype))
    inputs = list(values)
    gradient = p.const((special if "grad" in specials else arr)(*(grad_shape or shape), seed=9)(dtype), name="grad")
    tail = [gradient]
    if indices is not None:
        tail.append(p.const(indices, name="indices"))
        attrs = attrs | {"Tindices": "int64" if indices.dtype == np.int64 else "int32"}

    def scalar(key):
        if key == "global_step":
            return p.const(np.int64(3), name=key)
        return p.const(convert((scalars or {}).get(key, SCALARS[key]), dtype), name=key)

    inputs += [scalar(key) for key in before or []] + tail + [scalar(key) for key in after]
    p.node(op, inputs, name="update", T=dtype, **attrs)
    if initialize:
        p.step(target=assigns)
    for _ in range(1 if is_special else 4):
        p.step(target=["update"])
    if initialize:
        p.step(fetch=reads)


def cases(c):
    import harness

    for optimizer, (slots, before, after, flags) in DENSE.items():
        for prefix in ("Apply", "ResourceApply"):
            op = prefix + optimizer
            if op not in harness.OPS:
                continue
            for dtype in c.dtypes(op, "T"):
                update(c, op, "", dtype, slots, before, after, {})
            for flag, choices in flags.items():
                for choice in choices:
                    update(c, op, f"{flag}_{str(choice).lower()}", "float", slots, before, after, {flag: choice})
            update(c, op, "use_locking", "float", slots, before, after, {"use_locking": True})
            update(c, op, "mismatch", "float", slots, before, after, {}, grad_shape=(3,))
            update(c, op, "uninitialized", "float", slots, before, after, {}, initialize=False)
            update(c, op, "vector", "float", slots, before, after, {}, shape=(19,))
            update(c, op, "empty", "float", slots, before, after, {}, shape=(0, 2))
            # References and handles lead to the same formulas.
            if prefix == "Apply" and "ResourceApply" + optimizer in harness.OPS:
                continue
            for dtype in ("float", "double"):
                update(c, op, "special", dtype, slots, before, after, {}, shape=(9, 13), is_special=True)
            for flag, choices in flags.items():
                update(
                    c,
                    op,
                    f"special_{flag}",
                    "float",
                    slots,
                    before,
                    after,
                    {flag: choices[1]},
                    shape=(9, 13),
                    is_special=True,
                )
            if "lr_power" in after:
                update(
                    c,
                    op,
                    "special_power",
                    "float",
                    slots,
                    before,
                    after,
                    {},
                    shape=(9, 13),
                    is_special=True,
                    scalars={"lr_power": -0.7},
                )
        for prefix in ("SparseApply", "ResourceSparseApply"):
            op = prefix + optimizer
            if op not in harness.OPS:
                continue
            for dtype in c.dtypes(op, "T"):
                update(
                    c,
                    op,
                    "",
                    dtype,
                    slots,
                    before,
                    after,
                    {},
                    shape=(3, 2),
                    grad_shape=(2, 2),
                    indices=np.int32([2, 0]),
                )
            for flag, choices in flags.items():
                for choice in choices:
                    update(
                        c,
                        op,
                        f"{flag}_{str(choice).lower()}",
                        "float",
                        slots,
                        before,
                        after,
                        {flag: choice},
                        shape=(3, 2),
                        grad_shape=(2, 2),
                        indices=np.int64([2, 0]),
                    )
            update(
                c,
                op,
                "duplicates",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3, 2),
                grad_shape=(3, 2),
                indices=np.int32([1, 1, 1]),
            )
            update(
                c,
                op,
                "mixed_duplicates",
                "float",
                slots,
                before,
                after,
                {"use_locking": True},
                shape=(3, 2),
                grad_shape=(4, 2),
                indices=np.int64([2, 0, 2, 2]),
            )
            update(
                c,
                op,
                "mixed_duplicates",
                "double",
                slots,
                before,
                after,
                {},
                shape=(3, 2),
                grad_shape=(4, 2),
                indices=np.int32([2, 0, 2, 2]),
            )
            update(
                c,
                op,
                "vector",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3,),
                grad_shape=(2,),
                indices=np.int32([2, 0]),
            )
            update(
                c,
                op,
                "rows_of_nothing",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3, 0),
                grad_shape=(2, 0),
                indices=np.int32([2, 0]),
            )
            update(
                c,
                op,
                "nothing",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3, 2),
                grad_shape=(0, 2),
                indices=np.zeros(0, np.int32),
            )
            update(
                c,
                op,
                "out_of_range",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3, 2),
                grad_shape=(1, 2),
                indices=np.int32([3]),
            )
            update(
                c,
                op,
                "mismatch",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3, 2),
                grad_shape=(1, 2),
                indices=np.int32([0, 1]),
            )
            update(
                c,
                op,
                "uninitialized",
                "float",
                slots,
                before,
                after,
                {},
                shape=(3, 2),
                grad_shape=(1, 2),
                indices=np.int32([0]),
                initialize=False,
            )
            if prefix == "SparseApply":
                continue
            rows = {"indices": np.int32(range(9)), "is_special": True}
            update(c, op, "special", "float", slots, before, after, {}, shape=(9, 13), **rows)
            update(
                c,
                op,
                "special_vector",
                "float",
                slots,
                before,
                after,
                {},
                shape=(117,),
                **rows | {"indices": np.int32(range(117))},
            )
            if optimizer in ("Adagrad", "Adadelta", "RMSProp"):
                update(c, op, "special", "complex64", slots, before, after, {}, shape=(9, 13), **rows)
            for flag, choices in flags.items():
                update(
                    c, op, f"special_{flag}", "float", slots, before, after, {flag: choices[1]}, shape=(9, 13), **rows
                )
            if "lr_power" in after:
                update(
                    c,
                    op,
                    "special_power",
                    "float",
                    slots,
                    before,
                    after,
                    {},
                    shape=(9, 13),
                    **rows,
                    scalars={"lr_power": -0.7},
                )
