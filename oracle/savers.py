"""Stock's savers, for the tests of Ferroflow's.

python savers.py nodes            the nodes that savers add, for each kind
python savers.py read DIRECTORY   the checkpoints of a directory and the values of the latest
python savers.py write DIRECTORY  restores the latest checkpoint, doubles every value and saves two more
"""

import os
import sys

import environment

import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()


def variables(resource):
    with v1.variable_scope("", use_resource=resource):
        with v1.device("/job:ps/task:0"):
            v1.get_variable("w", [2, 3])
            v1.get_variable("step", [], tf.int64, v1.zeros_initializer())
        with v1.device("/job:ps/task:1"):
            v1.get_variable("b", [3])
            if not resource:
                v1.get_variable("table", [4, 2], partitioner=v1.fixed_size_partitioner(2))


def nodes():
    for sharded in [False, True]:
        for resource in [False, True]:
            with tf.Graph().as_default() as graph:
                variables(resource)
                v1.train.Saver(sharded=sharded)
                for node in graph.as_graph_def().node:
                    if node.name.startswith("save/"):
                        value = ""
                        if node.op == "Const":
                            value = " ".join(str(v) for v in tf.make_ndarray(node.attr["value"].tensor).flatten())
                        print(sharded, resource, node.name, node.op, ",".join(node.input), node.device, value, sep="|")


def read(directory):
    state = tf.train.get_checkpoint_state(directory)
    print("latest", os.path.basename(tf.train.latest_checkpoint(directory)))
    print("all", " ".join(os.path.basename(path) for path in state.all_model_checkpoint_paths))
    print("timestamps", len(state.all_model_checkpoint_timestamps))
    reader = tf.train.load_checkpoint(state.model_checkpoint_path)
    for name in sorted(reader.get_variable_to_shape_map()):
        values = " ".join(str(float(v)) for v in reader.get_tensor(name).flatten())
        print(name, values)


def write(directory):
    latest = tf.train.latest_checkpoint(directory)
    # The graph as well comes from the directory.
    saver = v1.train.import_meta_graph(latest + ".meta")
    with v1.Session() as session:
        saver.restore(session, latest)
        session.run([variable.assign_add(variable.read_value()) for variable in v1.global_variables()])
        for step in [100, 101]:
            saver.save(session, os.path.join(directory, "model.ckpt"), global_step=step)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
