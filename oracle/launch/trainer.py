"""A classic trainer of stock's, which knows nothing of who started it: between-graph replication with a monitored session.

    python trainer.py [--steps N] [--ps_hosts=… --worker_hosts=… --job_name=… --task_index=…]

Without the flags of a cluster it takes its place from TF_CONFIG.
"""

import argparse
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import environment

import tensorflow as tf

v1 = tf.compat.v1


def place(args):
    """The cluster and the task that this program is."""
    if args.job_name:
        hosts = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
        return tf.train.ClusterSpec(hosts), args.job_name, args.task_index
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return resolver.cluster_spec(), resolver.task_type, resolver.task_id


def look_often():
    """A worker that finds the model without values looks again soon, not after half a minute."""
    manager = v1.train.SessionManager
    stock = manager.__init__
    manager.__init__ = lambda self, *args, **kwargs: stock(self, *args, **{"recovery_wait_secs": 0.1, **kwargs})


class Together(v1.train.SessionRunHook):
    """Does not end before `workers` workers have begun, so that none finds the cluster gone."""

    def __init__(self, workers):
        self.workers = workers
        self.begun = v1.get_variable("begun", initializer=0, trainable=False)
        self.begin_here = v1.assign_add(self.begun, 1)

    def after_create_session(self, session, coord):
        session.run(self.begin_here)

    def end(self, session):
        while session.run(self.begun) < self.workers:
            time.sleep(0.05)


def main(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--ps_hosts")
    parser.add_argument("--worker_hosts")
    parser.add_argument("--job_name")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--together", type=int, default=0)
    args = parser.parse_args(argv)
    cluster, job, index = place(args)
    server = tf.distribute.Server(cluster, job_name=job, task_index=index)
    if job == "ps":
        server.join()
    look_often()
    chief = job == "chief" or ("chief" not in cluster.jobs and index == 0)
    own = f"/job:{job}/task:{index}"
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=own)):
            step = v1.train.get_or_create_global_step()
            weight = v1.get_variable("weight", initializer=0.0)
            loss = tf.square(weight - 3.0)
            train = v1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)
            together = [Together(args.together)] if args.together else []
        config = v1.ConfigProto(device_filters=["/job:ps", own])
        hooks = [v1.train.StopAtStepHook(last_step=args.steps), *together]
        reached = value = None
        with v1.train.MonitoredTrainingSession(server.target, is_chief=chief, hooks=hooks, config=config) as session:
            while not session.should_stop():
                if reached is None:
                    print(f"{job} {index} trains", flush=True)
                _, reached, value = session.run([train, step, weight])
    print(
        f"{job} {index} came late"
        if reached is None
        else f"{job} {index} has ended at step {reached} with {value:.3f}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
