"""Workers count in one variable of a parameter server, through monitored sessions, while some of them are killed.

Every increment that a worker was told of is in the sum. One that was under way when its worker was killed may be in it
or not: nobody was told.
"""

import os
import pathlib
import random

import guide
import tasks
from report import v1

import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours", "our-ps")

WORKERS = 3


def orchestrate(layout, binary, kills=6, seed=1):
    kinds = [layout["worker"][i % len(layout["worker"])] for i in range(WORKERS)]
    with guide.cluster_of({"ps": layout["ps"][:1], "worker": kinds}, binary, WORKERS) as (cluster, inside, directory):
        undisturbed(cluster, inside, directory)
    with guide.cluster_of({"ps": layout["ps"][:1], "worker": kinds}, binary, WORKERS) as (cluster, inside, directory):
        killed(cluster, inside, directory, kills, random.Random(seed))


def graph(index):
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, worker_device=f"/job:worker/task:{index}")):
        v1.train.get_or_create_global_step()
        count = v1.get_variable("count", [], tf.int64, v1.zeros_initializer(), use_resource=True)
        return v1.assign_add(count, 1)


def work(cluster, index, inside, journal, limit):
    """Counts, and notes each attempt and each answer in a file that survives this process."""
    target = guide.own_target(cluster, index, inside)
    with tf.Graph().as_default(), open(journal, "ab", buffering=0) as notes:
        add = graph(index)
        config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
        with v1.train.MonitoredTrainingSession(target, is_chief=index == 0, config=config, max_wait_secs=60) as session:
            print("counting", flush=True)
            done = 0
            while done < limit:
                notes.write(b"t")
                session.run(add)
                notes.write(b"a")
                done += 1


def value(cluster):
    with tf.Graph().as_default() as made:
        with tf.device("/job:ps/task:0"):
            handle = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name="count")
            count = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
        config = v1.ConfigProto(device_filters=["/job:ps"])
        with v1.Session(cluster.target("ps", 0), graph=made, config=config) as session:
            print(int(session.run(count)), flush=True)


def read(cluster):
    return int(tasks.Client(value, cluster).finish(60)[0])


def begin(cluster, index, inside, directory, limit=1_000_000):
    journal = os.path.join(directory, f"worker-{index}")
    return tasks.Client(work, cluster, index, inside, journal, limit)


def tally(directory):
    """Increments that were tried and those that were acknowledged."""
    notes = b"".join(file.read_bytes() for file in pathlib.Path(directory).glob("worker-*"))
    return notes.count(b"t"), notes.count(b"a")


def undisturbed(cluster, inside, directory):
    clients = [begin(cluster, 0, inside, directory, 100)]
    clients[0].wait_for("counting", 60)
    clients += [begin(cluster, index, inside, directory, 100) for index in range(1, WORKERS)]
    ended = [client.finish(60) for client in clients]
    print(f"every worker ended: {all(lines == ['counting'] for lines in ended)}", flush=True)
    print(f"the value is the number of increments: {read(cluster) == 100 * WORKERS}", flush=True)


def counted(directory, more):
    """Waits until `more` more increments are acknowledged; whether that happens."""
    goal = tally(directory)[1] + more
    return tasks.until(lambda: tally(directory)[1] >= goal, 60)


def killed(cluster, inside, directory, kills, chance):
    clients = {0: begin(cluster, 0, inside, directory)}
    going = clients[0].wait_for("counting", 60)
    for index in range(1, WORKERS):
        clients[index] = begin(cluster, index, inside, directory)
        going &= clients[index].wait_for("counting", 60)
    for _ in range(kills):
        going &= counted(directory, chance.randrange(1, 200))
        # The chief would start the count anew.
        victim = chance.randrange(1, WORKERS)
        clients[victim].kill()
        if victim not in inside:
            task = cluster.task("worker", victim)
            task.kill()
            task.start()
            task.wait()
        clients[victim] = begin(cluster, victim, inside, directory)
        going &= clients[victim].wait_for("counting", 60)
        going &= counted(directory, 20)
    for client in clients.values():
        client.kill()
    tried, acknowledged = tally(directory)
    found = read(cluster)
    print(f"counting went on after every kill: {going}", flush=True)
    print(f"no acknowledged increment is missing, none is counted twice: {acknowledged <= found <= tried}", flush=True)
    in_flight = kills + WORKERS
    print(f"at most one of each killed worker was under way: {tried - acknowledged <= in_flight}", flush=True)
