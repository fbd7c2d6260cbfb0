"""`strategy.run` in scheduled functions: reductions, aggregated variables, sums that replicas keep until they are read."""

from coordinator import program
from report import show, show_failure

import tensorflow as tf

KINDS = {
    "none": tf.VariableAggregation.NONE,
    "sum": tf.VariableAggregation.SUM,
    "mean": tf.VariableAggregation.MEAN,
    "first": tf.VariableAggregation.ONLY_FIRST_REPLICA,
}


# With one worker, a mixture of parameter servers says no more than these.
LAYOUTS = ("stock", "ours", "our-ps", "our-workers")


def orchestrate(layout, binary):
    program.orchestrate(run, layout, binary)


def run(cluster):
    strategy, coordinator = program.connect(cluster)
    show("replicas", strategy.num_replicas_in_sync)
    with strategy.scope():
        variables = {name: tf.Variable([1.0, 2.0], aggregation=kind) for name, kind in KINDS.items()}
        total = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        auto = tf.Variable(5, synchronization=tf.VariableSynchronization.AUTO)
        drawn = tf.Variable(lambda: tf.random.stateless_uniform([2], [1, 2]))
    show("kinds", [type(each).__name__ for each in (*variables.values(), total, auto)])
    show("where", [each.device for each in (*variables.values(), total, auto)])

    @tf.function
    def step(x):
        def replica(x):
            context = tf.distribute.get_replica_context()
            for variable in variables.values():
                variable.assign_add(x)
            total.assign_add(tf.reduce_sum(x))
            auto.assign_add(1)
            return tf.reduce_sum(x) + tf.cast(context.replica_id_in_sync_group, tf.float32), x

        per_replica = strategy.run(replica, args=(x,))
        return [strategy.reduce(op, value, axis=None) for op in ("SUM", "MEAN") for value in per_replica]

    values = [coordinator.schedule(step, (tf.constant([float(i), 0.5]),)) for i in range(4)]
    coordinator.join()
    show("reduced", coordinator.fetch(values))
    show("variables", [variable.numpy() for variable in variables.values()])
    show("kept", [total.numpy(), auto.numpy(), drawn.numpy()])

    @tf.function
    def merged(x):
        def update(_, x):
            strategy.extended.update(variables["sum"], lambda v, g: v.assign_sub(g), args=(x,))

        def replica(x):
            tf.distribute.get_replica_context().merge_call(update, args=(x,))
            return x

        return strategy.run(replica, args=(x,))

    coordinator.schedule(merged, (tf.constant([1.0, 1.0]),))
    coordinator.join()
    show("merged", variables["sum"].numpy())

    @tf.function
    def averaged(x):
        average = tf.train.ExponentialMovingAverage(0.5)
        return x + tf.cast(average is not None, tf.float32)

    show("plain", coordinator.schedule(averaged, (1.0,)).fetch())

    # Values that are neither tensors nor constants.
    @tf.function
    def structured(pair, scale=1.0):
        return {"a": pair["x"] * scale, "b": [pair["y"], tf.constant("text")]}

    value = coordinator.schedule(structured, ({"x": 2.0, "y": tf.constant([1, 2])},), {"scale": 3.0})
    show("structured", value.fetch())
    # The result of one closure as the argument of another.
    show_failure("a value as an argument", lambda: coordinator.schedule(averaged, (value,)))

    show_failure("a function of Python", lambda: coordinator.schedule(lambda: 7))
    show(
        "concrete", coordinator.schedule(averaged.get_concrete_function(tf.TensorSpec([])), (tf.constant(4.0),)).fetch()
    )

    @tf.function
    def raises():
        raise ValueError("while it is traced")

    show_failure("an error of Python", lambda: coordinator.schedule(raises))
    coordinator.join()
    show("done", coordinator.done())
