"""Prints, as stock reads them, a checkpoint, an event file and a graph that the package wrote.

read_files.py CHECKPOINT_PREFIX EVENT_FILE GRAPH_TEXT
"""

import sys

import tensorflow as tf
from google.protobuf import text_format

prefix, events, graph = sys.argv[1:]
reader = tf.train.load_checkpoint(prefix)
for name, dtype in sorted(reader.get_variable_to_dtype_map().items()):
    print(name, dtype.name, reader.get_tensor(name).tolist())

for event in tf.compat.v1.train.summary_iterator(events):
    for value in event.summary.value:
        number = value.simple_value if value.HasField("simple_value") else tf.make_ndarray(value.tensor).tolist()
        print(event.step, event.wall_time, value.tag, number)

with open(graph) as file:
    definition = text_format.Parse(file.read(), tf.compat.v1.GraphDef())
with tf.Graph().as_default() as imported, tf.compat.v1.Session() as session:
    tf.import_graph_def(definition, name="")
    session.run("init_1")
    print("y", session.run("y:0", {"x:0": [[3.0, 4.0]]}).tolist())
    print("loud", session.run("loud:0", {"words:0": ["ä", b"\xff"]}).tolist())
    print("operations", len(imported.get_operations()))
