"""Functions that the client gives up while they run: `cancelled_program.py WORKER WORKER PS`. Whatever waits for them ends,
on every task. (On those of stock, dequeues of tasks that were not asked themselves go on waiting.)"""

import faulthandler
import os
import pathlib
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import environment

# What threads ask of a task would otherwise wait for each other, in one stream per task.
os.environ["TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE"] = "False"

from report import show, show_failure

import tensorflow as tf
from tensorflow.python.eager import cancellation

TASKS = ("/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0")


def main(first, second, ps):
    tf.config.experimental_connect_to_cluster(
        tf.train.ClusterSpec({"worker": [first, second], "ps": [ps]}), job_name="client"
    )
    started, never = [make_queues() for _ in range(2)]
    counts = [on(device, lambda: tf.Variable(0)) for device in TASKS]

    @tf.function
    def wait():
        results = []
        for device, start, queue in zip(TASKS, started, never):
            with tf.device(device), tf.control_dependencies([start.enqueue(1.0)]):
                results.append(queue.dequeue())
        return tf.add_n(results)

    @tf.function
    def loop():
        total = tf.constant(0.0)
        started[0].enqueue(1.0)
        while total >= 0.0:
            with tf.device(TASKS[2]):
                total += 1.0
        return total

    @tf.function
    def settle():
        for count in counts:
            count.assign_add(1)

    for device in TASKS:
        cancel(f"all wait, asked of {device}", device, wait, started)
        # Whatever the task that was asked tells the others comes before this.
        with tf.device(device):
            settle()
        for queue in never:
            queue.enqueue(1.0)
        # A dequeue that had not ended would have taken one.
        show("nobody waits", [queue.size().numpy() for queue in never])
        with tf.device(device):
            show("asked again", wait().numpy())
        for queue in started:
            queue.dequeue()
    cancel("a loop over two tasks", TASKS[0], loop, started[:1])
    show("and on", (tf.constant(1.0) + 1.0).numpy())


def make_queues():
    return [on(device, lambda: tf.queue.FIFOQueue(4, tf.float32, shapes=[[]])) for device in TASKS]


def on(device, call):
    with tf.device(device):
        return call()


def cancel(label, device, function, started):
    """Calls a function and gives it up once it has begun wherever it says so."""
    manager = cancellation.CancellationManager()
    cancellable = manager.get_cancelable_function(function.get_concrete_function())

    def give_up():
        for queue in started:
            queue.dequeue().numpy()
        manager.start_cancel()

    helper = threading.Thread(target=give_up)
    helper.start()

    def call():
        with tf.device(device):
            return cancellable().numpy()

    show_failure(label, call)
    helper.join()


if __name__ == "__main__":
    # It takes seconds.
    faulthandler.dump_traceback_later(300, exit=True)
    main(*sys.argv[1:4])
    sys.stdout.flush()
    os._exit(0)
