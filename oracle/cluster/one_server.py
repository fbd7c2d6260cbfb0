"""The only server of a session is killed and started again: the session is told, a monitored one goes on."""

import pathlib
import tempfile
import time

import tasks
from report import session, show, show_failure, v1

import tensorflow as tf

LAYOUTS = ("stock", "ours")

# How long the server may be away and come back.
SECONDS_AWAY = 60


def orchestrate(layout, binary):
    with tasks.Cluster({"worker": layout["worker"][:1]}, binary) as cluster, tempfile.TemporaryDirectory() as directory:
        for client in [plain, recovering]:
            again = pathlib.Path(directory) / client.__name__
            running = tasks.Client(client, cluster.target(), again, directory)
            running.wait_for("now restart", SECONDS_AWAY)
            task = cluster.task("worker", 0)
            task.kill()
            task.start()
            task.wait()
            again.touch()
            for line in running.finish(SECONDS_AWAY):
                print(line, flush=True)


def restart(again):
    """Has the server killed and started."""
    print("now restart", flush=True)
    tasks.until(again.exists, SECONDS_AWAY)


def answered(call):
    """Calls until an answer comes from the server that is there now, not from the connection that was lost."""
    deadline = time.monotonic() + SECONDS_AWAY
    while True:
        try:
            return call()
        except tf.errors.UnavailableError:
            if time.monotonic() > deadline:
                raise


def plain(target, again, _):
    with tf.Graph().as_default() as graph:
        count = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), use_resource=True)
        more = v1.assign_add(count, 1)
        old = session(target, graph)
        old.run(count.initializer)
        show("counted", [old.run(more) for _ in range(3)])
        restart(again)
        show_failure("a session of the server that was killed", lambda: answered(lambda: old.run(more)))
        with session(target, graph) as new:
            show_failure("its variables", lambda: new.run(more))
            new.run(count.initializer)
            show("a new session works", new.run(more))


def recovering(target, again, directory):
    with tf.Graph().as_default():
        more = v1.assign_add(v1.train.get_or_create_global_step(), 1)
        quiet = {"log_step_count_steps": None, "save_summaries_steps": None, "save_summaries_secs": None}
        with v1.train.MonitoredTrainingSession(
            target, checkpoint_dir=directory, save_checkpoint_steps=1, **quiet
        ) as sess:
            show("counted", [sess.run(more) for _ in range(3)])
            restart(again)
            show("went on from the checkpoint", [sess.run(more) for _ in range(2)])
