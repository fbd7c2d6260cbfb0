"""A stock worker that trains the model of `tests/tests/monitored.rs` in a cluster, as chief or not.

    python worker.py CLUSTER TASK chief|worker LAST_STEP [sync]

Prints how many steps it made.
"""

import json
import os
import sys

import environment

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()


def main():
    cluster, task, role, last_step = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task)
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{task}")):
        w = v1.get_variable("w", initializer=tf.constant(0.0), use_resource=True)
        step = v1.train.get_or_create_global_step()
        hooks = [v1.train.StopAtStepHook(last_step=last_step)]
        if "sync" in sys.argv:
            optimizer = v1.train.SyncReplicasOptimizer(v1.train.GradientDescentOptimizer(0.1), 2, 2)
            train = optimizer.minimize(0.5 * tf.square(w - 3.0), step)
            hooks.append(optimizer.make_session_run_hook(role == "chief"))
        else:
            moved = w.assign_sub((w - 3.0) * 0.1, read_value=False)
            with tf.control_dependencies([moved]):
                train = step.assign_add(1, read_value=False)
    steps = 0
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"])
    # The thread that applies gradients of synchronous training waits for more; nobody has to wait for it.
    waits = {"stop_grace_period_secs": 1, "max_wait_secs": 60}
    with v1.train.MonitoredTrainingSession(
        server.target, role == "chief", hooks=hooks, config=config, **waits
    ) as session:
        while not session.should_stop():
            session.run(train)
            steps += 1
    print("steps", steps, flush=True)


main()
# The server's threads do not end by themselves.
os._exit(0)
