"""SavedModels: what stock exports the server loads, and the other way round, with their assets and first steps, however the
folder is named."""

import os
import tempfile

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

LOCAL = ""


def run(target):
    with tempfile.TemporaryDirectory() as directory:
        for name, part in PARTS.items():
            print(f"-- {name}", flush=True)
            part(target, os.path.join(directory, name))


def model(asset):
    """A model with variables of both generations, one of them in pieces, and a first step that needs an asset."""
    x = v1.placeholder(tf.float32, [None, 2], name="x")
    w = v1.get_variable("w", initializer=np.float32([[1, 2], [3, 4]]), use_resource=False)
    b = v1.get_variable("b", initializer=np.float32([10, 20]), use_resource=True)
    table = v1.get_variable(
        "table",
        [5],
        initializer=lambda shape, dtype, partition_info: tf.ones(shape) * partition_info.var_offset[0],
        partitioner=v1.fixed_size_partitioner(2),
    )
    words = v1.get_variable(
        "words", initializer="nothing", trainable=False, use_resource=False, collections=[v1.GraphKeys.LOCAL_VARIABLES]
    )
    path = tf.constant(asset, name="asset_path")
    v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
    first = v1.group(v1.assign(words, tf.strings.regex_replace(path, ".*/", "")), name="first")
    y = tf.add(tf.matmul(x, w) + b, tf.reduce_sum(tf.convert_to_tensor(table)), name="y")
    return x, y, first


def export(writer, folder, asset, **options):
    with tf.Graph().as_default(), session(writer) as sess:
        x, y, first = model(asset)
        sess.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        builder = v1.saved_model.builder.SavedModelBuilder(folder)
        signature = v1.saved_model.predict_signature_def(inputs={"x": x}, outputs={"y": y})
        saver = v1.train.Saver(**options) if options else None
        assets = v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)
        builder.add_meta_graph_and_variables(
            sess, ["serve"], {"serving_default": signature}, assets_collection=assets, main_op=first, saver=saver
        )
        builder.save()


def load(reader, folder, tags):
    with tf.Graph().as_default(), session(reader) as sess:
        meta = v1.saved_model.loader.load(sess, tags, folder)
        signature = meta.signature_def["serving_default"]
        show(
            "answer", sess.run(signature.outputs["y"].name, {signature.inputs["x"].name: np.float32([[1, 0], [0, 1]])})
        )
        show("first step", sess.run("words:0"))
        show("variables", sorted(os.listdir(os.path.join(folder.removeprefix("file://"), "variables"))))


def both_ways(target, folder):
    asset = folder + "_vocabulary.txt"
    with open(asset, "w") as file:
        file.write("a\nb\n")
    for sharded in (False, True):
        for writer, reader in [(target, LOCAL), (LOCAL, target), (target, target)]:
            path = f"{folder}_{sharded}_{writer == LOCAL}_{reader == LOCAL}"
            export(writer, path, asset, **({"sharded": True} if sharded else {}))
            load(reader, path, ["serve"])
            load(reader, "file://" + path, ["serve"])


def addresses(target, folder):
    asset = folder + "_vocabulary.txt"
    with open(asset, "w") as file:
        file.write("a\n")
    export(target, "file://" + folder, asset)
    load(target, folder, ["serve"])
    load(target, "file://" + folder, ["serve"])
    os.remove(os.path.join(folder, "variables", "variables.index"))
    with tf.Graph().as_default(), session(target) as sess:
        show_failure(
            "no variables",
            lambda: (
                v1.saved_model.loader.load(sess, ["serve"], folder) and sess.run("y:0", {"x:0": np.float32([[1, 2]])})
            ),
        )


def old_checkpoints(target, folder):
    """Variables in the first format of checkpoints."""
    asset = folder + "_vocabulary.txt"
    with open(asset, "w") as file:
        file.write("a\n")
    export(LOCAL, folder, asset, write_version=v1.train.SaverDef.V1)
    load(target, folder, ["serve"])


def by_functions(target, folder):
    """`tf.saved_model.load` restores variables in a function, which the session runs as their initializer."""
    for use_resource in (False, True):
        path = f"{folder}_{use_resource}"
        with tf.Graph().as_default(), session(LOCAL) as sess:
            x = v1.placeholder(tf.float32, [None, 2], name="x")
            w = v1.get_variable("w", initializer=np.float32([[1, 2], [3, 4]]), use_resource=use_resource)
            y = tf.matmul(x, w, name="y")
            sess.run(v1.global_variables_initializer())
            v1.saved_model.simple_save(sess, path, {"x": x}, {"y": y})
        for name in (path, "file://" + path):
            with tf.Graph().as_default():
                loaded = tf.saved_model.load(name)
                y = loaded.signatures["serving_default"](x=tf.constant([[1.0, 1.0]]))["y"]
                with session(target) as sess:
                    sess.run([v1.global_variables_initializer(), v1.get_collection("saved_model_initializers")])
                    show("answer", sess.run(y))


PARTS = {
    "both_ways": both_ways,
    "addresses": addresses,
    "old_checkpoints": old_checkpoints,
    "by_functions": by_functions,
}
