"""Functions on tasks with two CPU devices each: several parts of a function on one task."""

import tasks
from coordinator import program
from cpu_devices import TwoDevices
from report import show

import tensorflow as tf

LAYOUTS = ("stock", "ours", "our-workers")


def orchestrate(layout, binary):
    cluster = TwoDevices({"ps": layout["ps"][:2], "worker": layout["worker"][:1]}, binary)
    for task in cluster.tasks:
        task.arguments = ["--cpu-devices", "2"]
    with cluster:
        for line in tasks.Client(run, cluster).finish(program.SECONDS):
            print(line, flush=True)


def run(cluster):
    _, coordinator = program.connect(cluster)
    places = [f"/job:ps/task:{task}/device:CPU:{device}" for task in range(2) for device in range(2)]
    variables = []
    for number, place in enumerate(places):
        with tf.device(place):
            variables.append(tf.Variable(float(number)))
    show("where", [variable.device for variable in variables])

    @tf.function
    def step(x):
        # Around all devices: tensors go from each to the next.
        for place, variable in zip(places, variables):
            with tf.device(place):
                x = variable.assign_add(x) + x
        return x

    values = [coordinator.schedule(step, (tf.constant(1.0),)) for _ in range(20)]
    coordinator.join()
    show("results", sorted(float(value) for value in coordinator.fetch(values)))
    show("state", [variable.numpy() for variable in variables])
