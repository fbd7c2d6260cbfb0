"""Prints which class every public name of TensorFlow's server is: `Ferroflow` or `stock`.

The argument says how the program is switched by itself: not at all, by an import at the beginning, or after TensorFlow.
"""

import sys

how = sys.argv[1] if len(sys.argv) > 1 else ""
if how == "first":
    import ferroflow.tensorflow
import tensorflow as tf
from tensorflow.compat.v1.train import Server
from tensorflow.python.training import server_lib
from tensorflow.python.training.server_lib import Server as private

if how == "late":
    import ferroflow.tensorflow  # noqa: F401

import sessions

classes = {
    "tf.distribute.Server": tf.distribute.Server,
    "tf.compat.v1.train.Server": tf.compat.v1.train.Server,
    "tf.compat.v1.distribute.Server": tf.compat.v1.distribute.Server,
    "from tensorflow.compat.v1.train import Server": Server,
    "server_lib.Server": server_lib.Server,
    "from server_lib import Server": private,
}
if hasattr(tf.train, "Server"):
    classes["tf.train.Server"] = tf.train.Server
for name, kind in classes.items():
    print("Ferroflow" if getattr(kind, "replaces_stock", False) else "stock", name)

server = tf.distribute.Server.create_local_server(config=tf.compat.v1.ConfigProto(device_count={"CPU": 2}))
print("isinstance", isinstance(server, tf.distribute.Server), isinstance(server, server_lib.Server))
with tf.compat.v1.Session(server.target, graph=tf.Graph()) as session, session.graph.as_default():
    print("sum", session.run(tf.constant(2) + 3))
    print("devices", sorted(device.name for device in session.list_devices()))
print("job", server.server_def.job_name, server.server_def.cluster.job[0].name)

# The bound of the server's own configuration holds for steps that bring none.
patient = tf.distribute.Server.create_local_server(config=tf.compat.v1.ConfigProto(operation_timeout_in_ms=200))
with tf.compat.v1.Session(patient.target, graph=tf.Graph()) as session, session.graph.as_default():
    try:
        session.run(tf.queue.FIFOQueue(1, [tf.int32]).dequeue())
    except tf.errors.OpError as error:
        print("step", type(error).__name__)

sessions.use(server.target)
