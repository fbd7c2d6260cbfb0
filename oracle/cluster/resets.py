"""Containers are emptied while steps wait in them, on the master's own task and elsewhere; stock's tasks crash."""

import threading

import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)


def orchestrate(layout, binary):
    with tasks.Cluster({"ps": layout["ps"][:1], "worker": layout["worker"][:2]}, binary) as cluster:
        for line in tasks.Client(use, cluster).finish(90):
            print(line, flush=True)
        print(f"every task lives: {all(task.alive() for task in cluster.tasks)}", flush=True)


def use(cluster):
    with tf.Graph().as_default() as graph:
        begun, waits, sizes = [], [], []
        for place in ["/job:ps/task:0", "/job:worker/task:0"]:
            with tf.device(place):
                count = v1.get_variable(f"begun_{len(begun)}", [], tf.int64, v1.zeros_initializer(), use_resource=True)
                queue = v1.FIFOQueue(5, [tf.int32], [[]], shared_name=f"queue_{len(begun)}")
                begun.append(count)
                with tf.control_dependencies([v1.assign_add(count, 1).op]):
                    waits.append(queue.dequeue())
                sizes.append(queue.size())
        ends = []

        def wait(session, fetch):
            try:
                ends.append(session.run(fetch))
            except tf.errors.OpError as error:
                ends.append(type(error).__name__)

        sessions = [v1.Session(cluster.target("worker", index), graph=graph) for index in range(2)]
        sessions[0].run(v1.global_variables_initializer())
        threads = [threading.Thread(target=wait, args=(session, fetch)) for session in sessions for fetch in waits]
        for thread in threads:
            thread.start()
        waiting = tasks.until(lambda: sessions[1].run(begun) == [2, 2], 60)
        print(f"two steps wait on each task: {waiting}", flush=True)
        v1.Session.reset(cluster.target("worker", 0))
        # The other master's steps wait where they were told to, until their session ends.
        sessions[1].close()
        for thread in threads:
            thread.join(60)
        print(
            f"they end with an error {ends}: {len(ends) == 4 and set(ends) <= {'CancelledError', 'AbortedError'}}",
            flush=True,
        )
        with v1.Session(cluster.target("worker", 0), graph=graph) as session:
            print(f"the queues are made anew: {session.run(sizes) == [0, 0]}", flush=True)
