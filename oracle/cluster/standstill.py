"""A parameter server that stands still: its port is open, but nothing is answered. Steps keep to their deadlines, sessions
can be closed, and others work once it goes on. Stock's masters hang when such a session is closed.
"""

import os
import pathlib
import signal

import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours", "our-workers")


def orchestrate(layout, binary):
    with tasks.Cluster({"ps": layout["ps"][:2], "worker": layout["worker"][:1]}, binary) as cluster:
        still = cluster.task("ps", 1)
        client = tasks.Client(use, cluster, still.pid)
        try:
            for line in client.finish(90):
                print(line, flush=True)
        finally:
            os.kill(still.pid, signal.SIGCONT)


def state(thread):
    return (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]


def use(cluster, still):
    with tf.Graph().as_default() as graph:
        variables = []
        for index in range(2):
            with tf.device(f"/job:ps/task:{index}"):
                variables.append(v1.get_variable(f"v{index}", initializer=float(index), use_resource=True))
        more = [v1.assign_add(each, 1.0) for each in variables]
        new = variables[1] * 2.0
        first, second = (v1.Session(cluster.target(), graph=graph) for _ in range(2))
        first.run(v1.global_variables_initializer())
        found = [first.run(more), second.run(more)]
        os.kill(still, signal.SIGSTOP)
        tasks.until(lambda: all(state(thread) == "T" for thread in pathlib.Path(f"/proc/{still}/task").iterdir()), 60)
        soon = v1.RunOptions(timeout_in_ms=500)
        # One that is known there, and one whose part has yet to be registered.
        for label, fetch in [("known", more[1]), ("new", new)]:
            kept = False
            try:
                first.run(fetch, options=soon)
            except tf.errors.DeadlineExceededError:
                kept = True
            print(f"a step that is {label} keeps to its deadline: {kept}", flush=True)
        found.append(second.run(more[0]))
        first.close()
        print("a session is closed: True", flush=True)
        found.append(second.run(more[0]))
        os.kill(still, signal.SIGCONT)
        found.append(second.run(more[0]))
        print(f"others go on {found}: {found == [[1.0, 2.0], [2.0, 3.0], 3.0, 4.0, 5.0]}", flush=True)
        with v1.Session(cluster.target(), graph=graph) as third:
            # A step that was given up may have been on its way.
            print(f"and with the one that stood still: {third.run(new) in (6.0, 8.0)}", flush=True)
        second.close()
