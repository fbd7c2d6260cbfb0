"""A slow, lossy and broken network between workers and parameter servers, which live in namespaces made by `ip netns`.

Skipped where the machine does not allow network namespaces.
"""

import contextlib
import os
import subprocess
import threading
import time

import tasks
from link import Link
from report import v1

import numpy as np
import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours", "our-ps")

SECONDS = 600


def orchestrate(layout, binary):
    network = Link()
    try:
        network.__enter__()
    except (OSError, subprocess.SubprocessError) as error:
        return print(f"skipped: this machine forbids network namespaces ({error})", flush=True)
    try:
        side = lambda job: 0 if job == "ps" else 1
        kinds = {"ps": layout["ps"][:2], "worker": layout["worker"][:1]}
        members = [(job, index) for job, all_kinds in kinds.items() for index in range(len(all_kinds))]
        cluster = tasks.Cluster(
            kinds,
            binary,
            hosts={member: network.hosts[side(member[0])] for member in members},
            namespaces={member: network.names[side(member[0])] for member in members},
        )
        with cluster:
            bad_weather(cluster, network)
            short_cut(cluster, network)
            # Stock's masters do not notice a link that is gone for good.
            if kinds["worker"][0] == tasks.OURS:
                long_cut(cluster, network)
    finally:
        network.__exit__()


def client(network, function, *arguments):
    return tasks.Client(function, *arguments, namespace=network.names[1])


def verdict(label, lines, errors=""):
    good = lines == ["True"]
    print(f"{label}: True" if good else f"{label}: {lines} {errors[-600:]}", flush=True)


def counting_graph():
    with tf.device("/job:ps/task:0"):
        count = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), use_resource=True)
    with tf.device("/job:ps/task:1"):
        total = v1.get_variable("total", [1_000_000], initializer=v1.zeros_initializer(), use_resource=True)
    x = v1.placeholder(tf.float32, [1_000_000])
    return count, total, x, v1.assign_add(count, 1), v1.assign_add(total, x)


def bad_weather(cluster, network):
    network.weather(delay=0.01, loss=0.01)
    run = client(network, steps, cluster)
    verdict("steps over a slow and lossy link", run.finish(180), run.errors())
    network.weather()


def steps(cluster):
    with tf.Graph().as_default() as graph:
        count, total, x, add, add_all = counting_graph()
        with v1.Session(cluster.target(), graph=graph) as session:
            session.run(v1.global_variables_initializer())
            value = np.arange(1_000_000, dtype=np.float32)
            for _ in range(10):
                session.run(add)
            for _ in range(2):
                session.run(add_all.op, {x: value})
            found = session.run([count, total])
        print(found[0] == 10 and np.array_equal(found[1], value * 2), flush=True)


def short_cut(cluster, network):
    """The link is dead for seconds while steps run."""
    run = client(network, count_for, cluster, 8.0)
    run.wait_for("counting", 60)
    time.sleep(1)
    network.cut()
    time.sleep(3)
    network.weather()
    verdict("counting over a link that was cut for seconds", run.finish(180)[1:], run.errors())


def count_for(cluster, seconds):
    """Increments through a monitored session, which may have to try again; none that was acknowledged is lost."""
    with tf.Graph().as_default():
        _count, _, _, add, _ = counting_graph()
        v1.train.get_or_create_global_step()
        initialize = tf.group(v1.global_variables_initializer())
        acknowledged = 0
        creator = v1.train.ChiefSessionCreator(v1.train.Scaffold(init_op=initialize), cluster.target())
        with v1.train.MonitoredSession(creator) as session:
            session.run(add)
            print("counting", flush=True)
            acknowledged += 1
            end = time.monotonic() + seconds
            last, restarted = 1, False
            while time.monotonic() < end or acknowledged < 20:
                value = int(session.run(add))
                # A session that had to be made again initializes again.
                restarted |= value <= last
                last = value
                acknowledged += 1
        print(bool(acknowledged >= 20 and (restarted or last >= acknowledged)), flush=True)


def long_cut(cluster, network):
    """A step waits for a server that is cut off for good: it ends with an error that training loops act on."""
    run = client(network, wait_for_nothing, cluster)
    run.wait_for("waiting", 60)
    time.sleep(1)
    network.cut()
    verdict("a step ends when its server is out of reach", run.finish(120)[1:], run.errors())
    network.weather()
    run = client(network, steps, cluster)
    verdict("and sessions work when it is back", run.finish(120), run.errors())


def wait_for_nothing(cluster):
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            queue = v1.FIFOQueue(1, [tf.int32], [[]], shared_name="nothing")
            size, take = queue.size(), queue.dequeue()
        with v1.Session(cluster.target(), graph=graph) as session:
            session.run(size)
            threading.Timer(0.5, lambda: print("waiting", flush=True)).start()
            with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
                session.run(take)
                print("no failure", flush=True)
            print(True, flush=True)
            # Closing would try to reach the server once more.
            os._exit(0)
