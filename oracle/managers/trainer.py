"""A program as people write it for stock TensorFlow: it learns its role from `TF_CONFIG` and knows nothing of Ferroflow.

    python trainer.py --steps N [--dir CHECKPOINTS] [--pause SECONDS]

Parameter servers wait for ever, as `Server.join` does. Prints one line per task when it has trained.
"""

import argparse
import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import environment

import tensorflow as tf

v1 = tf.compat.v1


class Pause(v1.train.SessionRunHook):
    """Makes training last."""

    def __init__(self, seconds):
        self._seconds = seconds

    def after_run(self, run_context, run_values):
        time.sleep(self._seconds)


def look_often():
    """A worker that finds the model without values looks again soon, not after half a minute."""
    manager = v1.train.SessionManager
    stock = manager.__init__
    manager.__init__ = lambda self, *args, **options: stock(self, *args, **{"recovery_wait_secs": 0.2, **options})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--dir")
    parser.add_argument("--pause", type=float, default=0)
    options = parser.parse_args()

    config = json.loads(os.environ["TF_CONFIG"])
    job, index = config["task"]["type"], int(config["task"]["index"])
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = v1.train.Server(cluster, job_name=job, task_index=index)
    name = f"{job}:{index}"
    print(f"{name} runs on {os.uname().nodename}", flush=True)
    if job == "ps":
        server.join()

    look_often()
    chief = job == "chief" or ("chief" not in cluster.jobs and index == 0)
    with tf.Graph().as_default():
        setter = v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:{job}/task:{index}")
        with v1.device(setter):
            step = v1.train.get_or_create_global_step()
            weights = v1.get_variable("weights", [4], initializer=v1.zeros_initializer(), use_resource=False)
            loss = tf.reduce_sum(tf.square(weights - [1.0, 2.0, 3.0, 4.0]))
            update = v1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
        filters = ["/job:ps", f"/job:{job}/task:{index}"]
        hooks = [v1.train.StopAtStepHook(last_step=options.steps), Pause(options.pause)]
        with v1.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=chief,
            checkpoint_dir=options.dir if chief else None,
            save_checkpoint_steps=5,
            save_summaries_steps=None,
            hooks=hooks,
            config=v1.ConfigProto(device_filters=filters),
            log_step_count_steps=None,
        ) as session:
            first = session.run_step_fn(lambda step_context: step_context.session.run(step))
            print(f"{name} starts at step {first}", flush=True)
            while not session.should_stop():
                session.run(update)
    print(f"{name} trained to step {options.steps}", flush=True)


if __name__ == "__main__":
    main()
