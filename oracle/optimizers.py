"""Writes `testdata/optimizers/*.tsv`: what stock's optimizers, moving averages, schedules and clipping do to small models.

    python oracle/optimizers.py [case]...

The test `optimizers` builds the same with Ferroflow. A file has lines of these kinds, fields separated by tabs:

    model   <dense|sparse> <resource|ref>            what follows is of this model
    node    <name> <op> <inputs> <controls> <class> <locking>   a node that applying gradients added
    value   <step> <name> <numbers>                  a variable, loss or result after that step

Reads of variables are left out of the nodes: a consumer's input is `read(<variable>)` instead, because how many reads
there are is of no consequence. What was there before is `outside`, unless it is a variable.
"""

import pathlib
import re
import sys

import environment

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
DIRECTORY = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "optimizers"
STEPS = 5
CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def iota(*shape, dtype=np.float32):
    """Numbers that are neither equal nor round: both sides make them the same way."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 11 - 5) / 8).astype(dtype).reshape(shape)


def text(value):
    value = np.asarray(value)
    digits = (lambda x: str(int(x))) if value.dtype.kind == "i" else (lambda x: repr(float(x)))
    return " ".join(digits(x) for x in value.reshape(-1))


def name_of(tensor, new, variables):
    op = tensor.op if isinstance(tensor, tf.Tensor) else tensor
    if op.type == "ReadVariableOp":
        return f"read({op.inputs[0].op.name})"
    known = op in new or any(op.name in (v, v + "/read") for v in variables)
    if not known:
        return "outside"
    return unnumbered(tensor.name if isinstance(tensor, tf.Tensor) else op.name)


def unnumbered(name):
    """The name without the number that depends on how many constants the model has."""
    return re.sub(r"^Const_\d+", "Const", name)


def nodes(new, variables):
    lines = []
    for op in new:
        # Python makes constants that nothing uses.
        if op.type == "ReadVariableOp" or (op.type == "Const" and not op.outputs[0].consumers()):
            continue
        attrs = op.node_def.attr
        lines.append(
            "\t".join(
                [
                    "node",
                    unnumbered(op.name),
                    op.type,
                    " ".join(name_of(x, new, variables) for x in op.inputs),
                    " ".join(sorted(name_of(c, new, variables) for c in op.control_inputs)),
                    " ".join(c.decode() for c in attrs["_class"].list.s),
                    str(attrs["use_locking"].b) if "use_locking" in attrs else "",
                ]
            )
        )
    return sorted(lines)


def train(make, lines, sparse, resource, compare_nodes=True, dtype=np.float32):
    lines.append(f"model\t{'sparse' if sparse else 'dense'}\t{'resource' if resource else 'ref'}")
    with tf.Graph().as_default() as graph:
        step = v1.get_variable(
            "global_step",
            [],
            tf.int64,
            v1.zeros_initializer(),
            trainable=False,
            use_resource=resource,
            collections=["variables", "global_step"],
        )
        if sparse:
            table = v1.get_variable("table", initializer=iota(5, 2, dtype=dtype), use_resource=resource)
            indices = tf.constant([0, 3, 0, 1])
            rows = tf.gather(table, indices) - tf.constant(iota(4, 2, dtype=dtype))
            loss = tf.reduce_sum(tf.square(rows))
            grads = [(tf.IndexedSlices(rows * tf.constant(2.0, dtype), indices, tf.constant([5, 2])), table)]
            optimizer = make(step)
        else:
            w = v1.get_variable("w", initializer=iota(3, 2, dtype=dtype), use_resource=resource)
            b = v1.get_variable("b", initializer=iota(2, dtype=dtype), use_resource=resource)
            error = tf.matmul(tf.constant(iota(4, 3, dtype=dtype)), w) + b - tf.constant(iota(4, 2, dtype=dtype))
            loss = tf.reduce_sum(tf.square(error))
            optimizer = make(step)
            grads = optimizer.compute_gradients(loss)
        before = set(graph.get_operations())
        update = optimizer.apply_gradients(grads, step)
        if compare_nodes:
            variables = [v.op.name for v in v1.global_variables()]
            new = [op for op in graph.get_operations() if op not in before]
            lines.extend(nodes(new, variables))
        watched = v1.global_variables()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for i in range(STEPS + 1):
                lines.append(f"value\t{i}\tloss\t{text(session.run(loss))}")
                for v in watched:
                    lines.append(f"value\t{i}\t{v.op.name}\t{text(session.run(v))}")
                session.run(update)


def all_models(make, **more):
    lines = []
    for sparse in (False, True):
        for resource in (True, False):
            train(make, lines, sparse, resource, **more)
    return lines


@case
def gradient_descent():
    return all_models(lambda step: v1.train.GradientDescentOptimizer(0.05))


@case
def momentum():
    return all_models(lambda step: v1.train.MomentumOptimizer(0.02, 0.9))


@case
def nesterov():
    return all_models(lambda step: v1.train.MomentumOptimizer(0.02, 0.9, use_nesterov=True))


@case
def adagrad():
    return all_models(lambda step: v1.train.AdagradOptimizer(0.1))


@case
def adagrad_da():
    return all_models(
        lambda step: v1.train.AdagradDAOptimizer(
            0.1, step, l1_regularization_strength=0.01, l2_regularization_strength=0.02
        )
    )


@case
def adadelta():
    return all_models(lambda step: v1.train.AdadeltaOptimizer(1.0))


@case
def adam():
    return all_models(lambda step: v1.train.AdamOptimizer(0.01))


@case
def adam_locking():
    return all_models(lambda step: v1.train.AdamOptimizer(0.02, 0.8, 0.95, 1e-4, use_locking=True, name="Steps"))


@case
def adam_double():
    return all_models(lambda step: v1.train.AdamOptimizer(0.01), dtype=np.float64)


@case
def rms_prop():
    return all_models(lambda step: v1.train.RMSPropOptimizer(0.05, momentum=0.5))


@case
def rms_prop_centered():
    return all_models(lambda step: v1.train.RMSPropOptimizer(0.05, decay=0.8, centered=True))


@case
def ftrl():
    return all_models(
        lambda step: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02)
    )


@case
def ftrl_v2():
    return all_models(lambda step: v1.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.03, beta=0.2))


@case
def proximal_gradient_descent():
    return all_models(lambda step: v1.train.ProximalGradientDescentOptimizer(0.05, 0.01, 0.02))


@case
def proximal_adagrad():
    return all_models(
        lambda step: v1.train.ProximalAdagradOptimizer(
            0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.02
        )
    )


@case
def scheduled():
    return all_models(lambda step: v1.train.MomentumOptimizer(v1.train.exponential_decay(0.05, step, 2, 0.5), 0.9))


class ByOp(v1.train.Optimizer):
    """An optimizer that this version of stock has as an op only."""

    def __init__(self, name, slots, dense, powers=(), sparse=None):
        super().__init__(False, name)
        self._slot_names, self._dense, self._powers, self._sparse = slots, dense, powers, sparse

    def _create_slots(self, variables):
        first = min(variables, key=lambda v: v.name)
        for name, start in self._powers:
            self._create_non_slot_variable(start, name, first)
        for v in variables:
            for slot in self._slot_names:
                self._zeros_slot(v, slot, self._name)

    def _power(self, name):
        return self._get_non_slot_variable(name, graph=tf.compat.v1.get_default_graph())

    def _resource_apply_dense(self, grad, var):
        return self._dense(self, var, [self.get_slot(var, s) for s in self._slot_names], grad)

    def _resource_apply_sparse(self, grad, var, indices):
        slots = [self.get_slot(var, s) for s in self._slot_names]
        if self._sparse is not None:
            return self._sparse(self, var, slots, grad, indices)
        return self._dense(self, var, slots, tf.scatter_nd(indices[:, None], grad, var.shape))

    def _finish(self, updates, name):
        with tf.control_dependencies(updates):
            powers = [self._power(n).assign(self._power(n) * start) for n, start in self._powers]
        return tf.group(*updates, *powers, name=name)


def by_op(*arguments, **more):
    lines = []
    for sparse in (False, True):
        train(lambda step: ByOp(*arguments, **more), lines, sparse, True, compare_nodes=False)
    return lines


@case
def adam_amsgrad():
    def dense(o, var, slots, grad):
        m, v, vhat = slots
        return tf.raw_ops.ResourceApplyAdamWithAmsgrad(
            var=var.handle,
            m=m.handle,
            v=v.handle,
            vhat=vhat.handle,
            beta1_power=o._power("beta1_power"),
            beta2_power=o._power("beta2_power"),
            lr=0.01,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-8,
            grad=grad,
        )

    return by_op("Adam", ["m", "v", "vhat"], dense, [("beta1_power", 0.9), ("beta2_power", 0.999)])


@case
def ada_max():
    def dense(o, var, slots, grad):
        return tf.raw_ops.ResourceApplyAdaMax(
            var=var.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            beta1_power=o._power("beta1_power"),
            lr=0.01,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-8,
            grad=grad,
        )

    def sparse(o, var, slots, grad, indices):
        """Only rows that have gradients move, and their moments."""
        m, v = slots
        moved = tf.gather(m, indices) * 0.9 + grad * (1 - 0.9)
        largest = tf.maximum(tf.gather(v, indices) * 0.999, tf.abs(grad))
        down = -0.01 / (1 - o._power("beta1_power")) * (moved / (largest + 1e-8))
        pairs = [
            (m, moved, tf.raw_ops.ResourceScatterUpdate),
            (v, largest, tf.raw_ops.ResourceScatterUpdate),
            (var, down, tf.raw_ops.ResourceScatterAdd),
        ]
        with tf.control_dependencies([moved, largest, down]):
            return tf.group(*[op(resource=r.handle, indices=indices, updates=x) for r, x, op in pairs])

    return by_op("AdaMax", ["m", "v"], dense, [("beta1_power", 0.9), ("beta2_power", 0.999)], sparse)


def keras(nesterov):
    def dense(o, var, slots, grad):
        return tf.raw_ops.ResourceApplyKerasMomentum(
            var=var.handle, accum=slots[0].handle, lr=0.02, grad=grad, momentum=0.9, use_nesterov=nesterov
        )

    def sparse(o, var, slots, grad, indices):
        return tf.raw_ops.ResourceSparseApplyKerasMomentum(
            var=var.handle,
            accum=slots[0].handle,
            lr=0.02,
            grad=grad,
            indices=indices,
            momentum=0.9,
            use_nesterov=nesterov,
        )

    return by_op("KerasMomentum", ["momentum"], dense, sparse=sparse)


@case
def keras_momentum():
    return keras(False)


@case
def keras_nesterov():
    return keras(True)


@case
def add_sign():
    def dense(o, var, slots, grad):
        return tf.raw_ops.ResourceApplyAddSign(
            var=var.handle, m=slots[0].handle, lr=0.02, alpha=1.0, sign_decay=0.5, beta=0.9, grad=grad
        )

    return by_op("AddSignOptimizer", ["m"], dense)


@case
def power_sign():
    def dense(o, var, slots, grad):
        return tf.raw_ops.ResourceApplyPowerSign(
            var=var.handle, m=slots[0].handle, lr=0.02, logbase=float(np.log(2.0)), sign_decay=0.5, beta=0.9, grad=grad
        )

    return by_op("PowerSignOptimizer", ["m"], dense)


@case
def moving_average():
    lines = []
    for resource in (True, False):
        for counted in (False, True):
            lines.append(f"model\t{'counted' if counted else 'plain'}\t{'resource' if resource else 'ref'}")
            with tf.Graph().as_default() as graph:
                step = v1.get_variable(
                    "global_step", [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=resource
                )
                w = v1.get_variable("w", initializer=iota(3), use_resource=resource)
                grow = v1.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.constant(iota(3) - 1), w)], step)
                averages = v1.train.ExponentialMovingAverage(0.9, num_updates=step if counted else None)
                before = set(graph.get_operations())
                update = averages.apply([w])
                variables = [v.op.name for v in v1.global_variables()]
                # Python's conditional marks its branches with nodes that nothing here looks at.
                new = [
                    op
                    for op in graph.get_operations()
                    if op not in before and op.name not in ("cond/Switch", "cond/switch_t", "cond/switch_f")
                ]
                # The average of a reference variable starts with a second conditional in the first.
                if resource:
                    lines.extend(nodes(new, variables))
                restored = averages.variables_to_restore()
                for name, v in sorted(restored.items()):
                    lines.append(f"restore\t{name}\t{v.op.name}")
                with v1.Session() as session:
                    session.run(v1.global_variables_initializer())
                    for i in range(STEPS + 1):
                        for v in v1.global_variables():
                            lines.append(f"value\t{i}\t{v.op.name}\t{text(session.run(v))}")
                        session.run(grow)
                        session.run(update)
    lines.append("model\tdebiased\tref")
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [3], name="x")
        averages = v1.train.ExponentialMovingAverage(0.9, zero_debias=True)
        update = averages.apply([x])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for i in range(STEPS):
                session.run(update, {x: iota(3) * i})
                for v in v1.global_variables():
                    lines.append(f"value\t{i}\t{v.op.name}\t{text(session.run(v))}")
    return lines


@case
def sync_replicas():
    lines = []
    for sparse in (False, True):
        lines.append(f"model\t{'sparse' if sparse else 'dense'}\tresource")
        with tf.Graph().as_default() as graph:
            step = v1.get_variable(
                "global_step", [], tf.int64, v1.zeros_initializer(), trainable=False, use_resource=True
            )
            w = v1.get_variable("w", initializer=iota(3, 2), use_resource=True)
            grad = tf.constant(iota(3, 2))
            if sparse:
                grad = tf.IndexedSlices(grad, tf.constant([0, 2, 0]), tf.constant([3, 2]))
            optimizer = v1.train.SyncReplicasOptimizer(v1.train.GradientDescentOptimizer(0.1), 2, 3)
            before = set(graph.get_operations())
            optimizer.apply_gradients([(grad, w)], step)
            optimizer.get_init_tokens_op()
            new = [
                op
                for op in graph.get_operations()
                if op not in before and not op.name.startswith("report_uninitialized")
            ]
            lines.extend(nodes(new, ["w", "global_step", "sync_rep_local_step"]))
            for op in new:
                for attr in ("shared_name", "shape", "dtype", "component_types", "shapes"):
                    if (
                        op.type in ("FIFOQueueV2", "ResourceConditionalAccumulator", "SparseConditionalAccumulator")
                        and attr in op.node_def.attr
                    ):
                        lines.append(f"attr\t{op.name}\t{attr}\t{' '.join(str(op.node_def.attr[attr]).split())}")
    return lines


@case
def schedules():
    train = v1.train
    made = {
        "exponential": lambda step: train.exponential_decay(0.1, step, 3, 0.9),
        "exponential_staircase": lambda step: train.exponential_decay(0.1, step, 3, 0.9, staircase=True),
        "natural_exp": lambda step: train.natural_exp_decay(0.1, step, 3, 0.5),
        "natural_exp_staircase": lambda step: train.natural_exp_decay(0.1, step, 3, 0.5, staircase=True),
        "inverse_time": lambda step: train.inverse_time_decay(0.1, step, 3, 0.5),
        "inverse_time_staircase": lambda step: train.inverse_time_decay(0.1, step, 3, 0.5, staircase=True),
        "piecewise": lambda step: train.piecewise_constant(step, [2, 5], [1.0, 0.5, 0.1]),
        "polynomial": lambda step: train.polynomial_decay(0.1, step, 6, 0.01, 2.0),
        "polynomial_cycle": lambda step: train.polynomial_decay(0.1, step, 3, 0.01, 0.5, cycle=True),
        "cosine": lambda step: train.cosine_decay(0.1, step, 6, 0.1),
        "cosine_restarts": lambda step: train.cosine_decay_restarts(0.1, step, 2, 2.0, 0.9, 0.1),
        "cosine_restarts_equal": lambda step: train.cosine_decay_restarts(0.1, step, 3, 1.0, 0.9, 0.1),
        "linear_cosine": lambda step: train.linear_cosine_decay(0.1, step, 6, 0.5, 0.1, 0.01),
    }
    lines = []
    with tf.Graph().as_default():
        step = v1.placeholder(tf.int64, [])
        rates = {name: make(step) for name, make in made.items()}
        with v1.Session() as session:
            for i in range(12):
                for name, value in session.run(rates, {step: i}).items():
                    lines.append(f"value\t{i}\t{name}\t{text(value)}")
    return lines


@case
def clipping():
    lines = []
    with tf.Graph().as_default():
        x, y = tf.constant(iota(3, 2)), tf.constant(iota(4))
        rows = tf.IndexedSlices(x, tf.constant([0, 2, 0]), tf.constant([3, 2]))
        zeros = tf.zeros([2])
        norms = {"far": 10.0, "near": 0.5}
        made = {
            "value": tf.clip_by_value(x, -0.3, 0.2),
            "value_rows": tf.clip_by_value(rows, -0.3, 0.2).values,
            "norm_zeros": tf.clip_by_norm(zeros, 1.0),
            "norm_axes": tf.clip_by_norm(x, 0.5, axes=[1]),
            "norm_rows": tf.clip_by_norm(rows, 0.5).values,
            "norm_negative": tf.clip_by_norm(x, -1.0),
            "average_norm_near": v1.clip_by_average_norm(x, 0.05),
            "average_norm_far": v1.clip_by_average_norm(x, 10.0),
            "global_norm": v1.global_norm([x, None, y, rows]),
        }
        for name, norm in norms.items():
            made["norm_" + name] = tf.clip_by_norm(x, norm)
            clipped, length = tf.clip_by_global_norm([x, None, y, rows], norm)
            made.update(
                {
                    f"global_{name}_x": clipped[0],
                    f"global_{name}_y": clipped[2],
                    f"global_{name}_rows": clipped[3].values,
                    f"global_{name}_norm": length,
                }
            )
        clipped, _ = tf.clip_by_global_norm([tf.constant([1.0, np.inf]), y], 1.0)
        made.update({"infinite_x": clipped[0], "infinite_y": clipped[1]})
        with v1.Session() as session:
            for name, value in sorted(session.run(made).items()):
                lines.append(f"value\t0\t{name}\t{text(value)}")
    return lines


def main(names):
    v1.disable_v2_behavior()
    v1.enable_resource_variables()
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name in names or CASES:
        lines = [f"# Written by oracle/optimizers.py with TensorFlow {tf.__version__}.", *CASES[name]()]
        (DIRECTORY / f"{name}.tsv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
