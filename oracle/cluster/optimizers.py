"""Every optimizer's update ops on a parameter server over several steps: dense, and sparse with duplicate rows."""

from numbers_close import show_close
from report import session, show_failure, v1

import tensorflow as tf

train = v1.train
raw = tf.raw_ops

OPTIMIZERS = [
    ("gradient descent", lambda: train.GradientDescentOptimizer(0.5)),
    ("gradient descent, locked", lambda: train.GradientDescentOptimizer(0.5, use_locking=True)),
    ("momentum", lambda: train.MomentumOptimizer(0.2, 0.9)),
    ("nesterov", lambda: train.MomentumOptimizer(0.2, 0.9, use_nesterov=True, use_locking=True)),
    ("adagrad", lambda: train.AdagradOptimizer(0.3)),
    ("adadelta", lambda: train.AdadeltaOptimizer(1.0, rho=0.9, epsilon=1e-4)),
    ("adam", lambda: train.AdamOptimizer(0.1)),
    ("rms", lambda: train.RMSPropOptimizer(0.1, momentum=0.5)),
    ("rms, centered", lambda: train.RMSPropOptimizer(0.1, momentum=0.5, centered=True, epsilon=1e-3)),
    ("ftrl", lambda: train.FtrlOptimizer(0.2, l1_regularization_strength=0.01, l2_regularization_strength=0.1)),
    ("ftrl with shrinkage", lambda: train.FtrlOptimizer(0.2, l2_shrinkage_regularization_strength=0.1)),
    ("proximal descent", lambda: train.ProximalGradientDescentOptimizer(0.3, 0.05, 0.1)),
    ("proximal adagrad", lambda: train.ProximalAdagradOptimizer(0.3, l1_regularization_strength=0.05)),
]

STEPS = 4


def run(cluster):
    for name, make in OPTIMIZERS:
        with tf.Graph().as_default() as graph:
            by_class(cluster, graph, name, make)
    with tf.Graph().as_default() as graph:
        dual_averaging(cluster, graph)
    with tf.Graph().as_default() as graph:
        raw_updates(cluster, graph)


def by_class(cluster, graph, name, make):
    """Both kinds of variables, dense and sparse, in one step."""
    with v1.device(train.replica_device_setter(ps_tasks=2)):
        variables, gradients = [], []
        x = v1.placeholder(tf.float32, [])
        for use_resource in [False, True]:
            v = v1.get_variable(f"dense_{use_resource}", initializer=[1.0, -2.0, 3.0], use_resource=use_resource)
            s = v1.get_variable(
                f"sparse_{use_resource}",
                initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
                use_resource=use_resource,
            )
            variables += [v, s]
            gradients.append(tf.stack([x, -x, 0.5 * x]))
            rows = tf.stack([[x, 1.0], [2.0, -x], [0.25, x]])
            gradients.append(tf.IndexedSlices(rows, tf.constant([2, 0, 2]), tf.constant([4, 2])))
        step = train.get_or_create_global_step()
        update = make().apply_gradients(list(zip(gradients, variables)), step)
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        for i in range(STEPS):
            sess.run(update, {x: 0.5 + 0.25 * i})
        show_close(name, sess.run({v.op.name: v for v in v1.global_variables()}))


def dual_averaging(cluster, graph):
    with v1.device(train.replica_device_setter(ps_tasks=2)):
        step = train.get_or_create_global_step()
        x = v1.placeholder(tf.float32, [])
        pairs = []
        for use_resource in [False, True]:
            v = v1.get_variable(f"dense_{use_resource}", initializer=[1.0, -2.0, 3.0], use_resource=use_resource)
            s = v1.get_variable(
                f"sparse_{use_resource}", initializer=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], use_resource=use_resource
            )
            pairs.append((tf.stack([x, -x, 0.5 * x]), v))
            pairs.append(
                (tf.IndexedSlices(tf.stack([[x, 1.0], [2.0, -x]]), tf.constant([2, 0]), tf.constant([3, 2])), s)
            )
        optimizer = train.AdagradDAOptimizer(0.3, step, l1_regularization_strength=0.01)
        update = optimizer.apply_gradients(pairs, step)
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        for i in range(STEPS):
            sess.run(update, {x: 0.5 + 0.25 * i})
        show_close("dual averaging", sess.run({v.op.name: v for v in v1.global_variables()}))


def raw_updates(cluster, graph):
    """Update ops that no class of the first generation uses."""
    made, updates = [], []
    x = v1.placeholder(tf.float32, [])
    grad = tf.stack([x, -x, 0.5])
    rows, at = tf.stack([[x, 1.0], [2.0, -x], [0.25, x]]), tf.constant([2, 0, 2])

    def handles(count, sparse=False):
        shape = [4, 2] if sparse else [3]
        with tf.device(f"/job:ps/task:{len(made) % 3}"):
            new = [
                v1.get_variable(f"v{len(made)}_{i}", initializer=tf.fill(shape, 0.5 + i), use_resource=True)
                for i in range(count)
            ]
        made.extend(new)
        return [each.handle for each in new]

    for locked in [False, True]:
        lock = dict(use_locking=locked)
        for nesterov in [False, True]:
            var, acc = handles(2)
            updates.append(
                raw.ResourceApplyKerasMomentum(
                    var=var, accum=acc, lr=0.1, grad=grad, momentum=0.9, use_nesterov=nesterov, **lock
                )
            )
            var, acc = handles(2, True)
            updates.append(
                raw.ResourceSparseApplyKerasMomentum(
                    var=var, accum=acc, lr=0.1, grad=rows, indices=at, momentum=0.9, use_nesterov=nesterov, **lock
                )
            )
        var, acc = handles(2)
        updates.append(raw.ResourceApplyAdagradV2(var=var, accum=acc, lr=0.1, epsilon=1e-3, grad=grad, **lock))
        var, acc = handles(2, True)
        updates.append(
            raw.ResourceSparseApplyAdagradV2(var=var, accum=acc, lr=0.1, epsilon=1e-3, grad=rows, indices=at, **lock)
        )
        var, m, v, vhat = handles(4)
        scalars = dict(beta1_power=0.9, beta2_power=0.99, lr=0.1, beta1=0.9, beta2=0.99, epsilon=1e-3)
        updates.append(raw.ResourceApplyAdamWithAmsgrad(var=var, m=m, v=v, vhat=vhat, grad=grad, **scalars, **lock))
        var, m, v = handles(3)
        updates.append(raw.ResourceApplyAdam(var=var, m=m, v=v, grad=grad, use_nesterov=True, **scalars, **lock))
        var, m, v = handles(3)
        del scalars["beta2_power"]
        updates.append(raw.ResourceApplyAdaMax(var=var, m=m, v=v, grad=grad, **scalars, **lock))
        var, m = handles(2)
        updates.append(
            raw.ResourceApplyAddSign(var=var, m=m, lr=0.1, alpha=1.0, sign_decay=0.9, beta=0.9, grad=grad, **lock)
        )
        var, m = handles(2)
        updates.append(
            raw.ResourceApplyPowerSign(var=var, m=m, lr=0.1, logbase=0.5, sign_decay=0.9, beta=0.9, grad=grad, **lock)
        )
    with session(cluster.target(), graph) as sess:
        sess.run(v1.global_variables_initializer())
        for i in range(STEPS):
            sess.run(updates, {x: 0.5 + 0.25 * i})
        show_close("raw updates", sess.run([tf.identity(v) for v in made]))
        handle = made[0].handle
        wrong = raw.ResourceApplyGradientDescent(var=handle, alpha=0.1, delta=v1.placeholder_with_default([1.0], None))
        show_failure("wrong shape", lambda: sess.run(wrong))
        handle = made[2].handle
        wrong = raw.ResourceSparseApplyAdagrad(var=handle, accum=made[3].handle, lr=0.1, grad=[[1.0, 1.0]], indices=[9])
        show_failure("no such row", lambda: sess.run(wrong))
