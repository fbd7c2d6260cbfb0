"""Variables, as references and as resources, and control dependencies between their updates."""

from report import session, show, show_failure, v1

import tensorflow as tf


def run(target):
    for use_resource in [False, True]:
        with tf.Graph().as_default():
            updates(target, use_resource)


def updates(target, use_resource):
    kind = "resource" if use_resource else "reference"
    v = v1.get_variable(f"{kind}_v", initializer=[1.0, 2.0, 3.0], use_resource=use_resource)
    m = v1.get_variable(f"{kind}_m", [3, 2], initializer=v1.ones_initializer(), use_resource=use_resource)
    n = v1.get_variable(f"{kind}_n", [], tf.int32, v1.zeros_initializer(), use_resource=use_resource)
    with session(target) as sess:
        show_failure(f"{kind} before initialization", lambda: sess.run(v + 1.0))
        show("uninitialized", sorted(name.decode() for name in sess.run(v1.report_uninitialized_variables())))
        sess.run(v1.global_variables_initializer())
        show("initialized", sess.run([v, m, n]))
        show("assign", sess.run(v1.assign(v, [4.0, 5.0, 6.0])))
        show("assign_add", sess.run(v1.assign_add(v, [1.0, 1.0, 1.0])))
        show("assign_sub", sess.run(v1.assign_sub(v, [0.5, 0.5, 0.5])))
        indices = [0, 2]
        show("scatter_update", sess.run([v1.scatter_update(m, indices, [[5.0, 5.0], [6.0, 6.0]])][0]))
        show("scatter_add", sess.run(v1.scatter_add(m, indices, [[1.0, 2.0], [3.0, 4.0]])))
        show("gather", sess.run(tf.gather(m, [2, 0, 2])))
        with tf.control_dependencies([v1.assign_add(n, 1)]), tf.control_dependencies([v1.assign_add(n, 10)]):
            ordered = tf.identity(n.read_value())
        show("in order", [sess.run(ordered) for _ in range(3)])
        loss = tf.reduce_sum(tf.square(v - [1.0, 2.0, 3.0]))
        train = v1.train.GradientDescentOptimizer(0.25).minimize(loss)
        for _ in range(3):
            sess.run(train)
        show("trained", sess.run([v, loss]))
        if not use_resource:
            # A value in place of the variable can be read, but there is nothing to update.
            show("read of a value fed for it", sess.run(tf.identity(v), {v._variable: [7.0, 8.0, 9.0]}))
            update = v1.assign_add(v, [1.0, 1.0, 1.0])
            show_failure("update of a value fed for it", lambda: sess.run(update, {v._variable: [7.0, 8.0, 9.0]}))
        show_failure(
            "wrong shape",
            lambda: sess.run(
                v1.assign(v, [1.0], validate_shape=False)
                if use_resource
                else v1.assign(v, v1.placeholder_with_default([1.0], None))
            ),
        )
