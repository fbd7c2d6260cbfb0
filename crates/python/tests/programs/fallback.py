"""Asks its server for a GPU, which stock's without one ignores."""

import tensorflow as tf

v1 = tf.compat.v1
server = tf.distribute.Server.create_local_server(config=v1.ConfigProto(device_count={"GPU": 1}))
with v1.Session(server.target, graph=tf.Graph()) as session, session.graph.as_default():
    print("sum", session.run(tf.constant(2) + 3))
