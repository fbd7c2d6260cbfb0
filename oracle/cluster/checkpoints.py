"""Checkpoints: written by three parameter servers, read by two; in stock's format, both ways."""

import pathlib
import re
import tempfile

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf


def run(cluster):
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        for use_resource in [False, True]:
            sharded(cluster, directory / f"sharded-{use_resource}", use_resource)
        single(cluster, directory / "single")
        written_by_stock(cluster, directory / "stock")
        kept(cluster, directory)
        wrong(cluster, directory)


def variables(ps_tasks, use_resource, parts):
    """Variables of several types, some in parts, spread over `ps_tasks` servers."""
    rows = np.arange(28, dtype=np.float32).reshape(7, 4)

    def part(shape, dtype=None, partition_info=None):
        return rows[partition_info.var_offset[0] :][: shape[0]]

    with v1.device(v1.train.replica_device_setter(ps_tasks=ps_tasks)):
        step = v1.train.get_or_create_global_step()
        table = v1.get_variable(
            "table", [7, 4], initializer=part, partitioner=v1.fixed_size_partitioner(parts), use_resource=use_resource
        )
        made = {"step": step, "table": table}
        for name, value in {
            "w": np.float32([[0.5, -1.25], [3.0, 1e-8]]),
            "half": np.float16([1.5, 2.5]),
            "count": np.int32(7),
            "flags": np.array([True, False, True]),
            "names": np.array([b"one", b"", b"three\0"], object),
            "double": np.float64([0.1]),
            "empty": np.zeros([0, 3], np.float32),
        }.items():
            made[name] = v1.get_variable(name, initializer=tf.constant(value), use_resource=use_resource)
        values = {name: tf.convert_to_tensor(v) if name == "table" else tf.identity(v) for name, v in made.items()}
    return made, values


def contents(prefix):
    """The content of a checkpoint, read by stock."""
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}


def files(prefix):
    return sorted(path.name for path in prefix.parent.glob(prefix.name + "*"))


def sharded(cluster, prefix, use_resource):
    v1.Session.reset(cluster.target())
    with tf.Graph().as_default() as graph:
        made, _ = variables(3, use_resource, 3)
        saver = v1.train.Saver(sharded=True)
        with session(cluster.target(), graph) as sess:
            sess.run(v1.global_variables_initializer())
            sess.run(v1.assign_add(made["step"], 17))
            show("saved", pathlib.Path(saver.save(sess, str(prefix), write_meta_graph=False)).name)
    show("files", files(prefix))
    show("contents", contents(prefix))
    for parts in [2, 3, 1]:
        v1.Session.reset(cluster.target())
        with tf.Graph().as_default() as graph:
            _, values = variables(2, use_resource, parts) if parts > 1 else whole(use_resource)
            saver = v1.train.Saver(sharded=parts == 2)
            with session(cluster.target("worker", 1), graph) as sess:
                saver.restore(sess, str(prefix))
                show(f"restored into {parts} parts", sess.run(values))


def whole(use_resource):
    """The partitioned variable as one, alone."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=2)):
        v = v1.get_variable("table", [7, 4], use_resource=use_resource)
    return {"table": v}, {"table": tf.identity(v)}


def single(cluster, prefix):
    v1.Session.reset(cluster.target())
    with tf.Graph().as_default() as graph:
        _, values = variables(3, True, 2)
        saver = v1.train.Saver()
        with session(cluster.target(), graph) as sess:
            sess.run(v1.global_variables_initializer())
            saver.save(sess, str(prefix), global_step=5, write_meta_graph=False, latest_filename="single.txt")
            numbered = prefix.with_name("single-5")
            show("files", files(numbered))
            show("contents", contents(numbered))
            sess.run([v1.assign(v, tf.zeros_like(v)) for v in v1.global_variables() if v.dtype.is_floating])
            saver.restore(sess, str(numbered))
            show("restored in place", sess.run(values))


def written_by_stock(cluster, prefix):
    """Writes a checkpoint by a stock session of this process."""
    path = by_stock(prefix, v1.train.SaverDef.V2)
    v1.Session.reset(cluster.target())
    with tf.Graph().as_default() as graph, v1.device(v1.train.replica_device_setter(ps_tasks=3)):
        w = v1.get_variable("w", [3, 4], use_resource=False)
        n = v1.get_variable("n", [], tf.int64, use_resource=True)
        part = tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=["w"], shape_and_slices=["3 4 1,2:2,2"], dtypes=[tf.float32]
        )
        with session(cluster.target(), graph) as sess:
            v1.train.Saver().restore(sess, path)
            show("of stock", sess.run([w, n, *part]))


def by_stock(prefix, version):
    """Writes a checkpoint of two variables in this process."""
    with tf.Graph().as_default() as graph:
        w = v1.get_variable("w", initializer=tf.reshape(tf.range(12.0), [3, 4]), use_resource=True)
        n = v1.get_variable("n", initializer=tf.constant(3, tf.int64), use_resource=True)
        with v1.Session(graph=graph) as sess:
            sess.run([w.initializer, n.initializer])
            saver = v1.train.Saver(write_version=version)
            return saver.save(sess, f"{prefix}-{version}", write_meta_graph=False, latest_filename="stock.txt")


def kept(cluster, directory):
    """A monitored session's own checkpoints."""
    v1.Session.reset(cluster.target())
    place = directory / "monitored"
    for last in [4, 9]:
        with tf.Graph().as_default():
            with v1.device(v1.train.replica_device_setter(ps_tasks=2)):
                step = v1.train.get_or_create_global_step()
                v = v1.get_variable("v", [], initializer=v1.zeros_initializer(), use_resource=True)
                with tf.control_dependencies([v1.assign_add(v, 1.5)]):
                    train = v1.assign_add(step, 1)
            hooks = [v1.train.StopAtStepHook(last_step=last)]
            steps = []
            with v1.train.MonitoredTrainingSession(
                cluster.target(),
                checkpoint_dir=str(place),
                save_checkpoint_steps=3,
                save_checkpoint_secs=None,
                hooks=hooks,
                log_step_count_steps=None,
            ) as sess:
                while not sess.should_stop():
                    steps.append(int(sess.run(train)))
            show("steps", steps)
        v1.Session.reset(cluster.target())
        latest = tf.train.latest_checkpoint(str(place))
        show("latest", [pathlib.Path(latest).name, contents(latest)])
    show("index files", sorted(path.name for path in place.glob("*.index")))


def wrong(cluster, directory):
    v1.Session.reset(cluster.target())
    good = directory / "single-5"

    def restore(prefix, name, dtype=tf.float32, spec=""):
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:1"):
            out = tf.raw_ops.RestoreV2(
                prefix=str(prefix),
                tensor_names=[name],
                shape_and_slices=v1.placeholder_with_default([spec], [1]),
                dtypes=[dtype],
            )
            with session(cluster.target(), graph) as sess:
                return sess.run(out)

    show_failure("no such checkpoint", lambda: restore(directory / "nothing", "w"))
    show_failure("no such tensor", lambda: restore(good, "nothing"))
    show_failure("another type", lambda: restore(good, "w", tf.int32))
    show_failure("another shape", lambda: restore(good, "w", spec="9 9 0,1:0,1"))
    show_failure("a bad slice", lambda: restore(good, "w", spec="nonsense"))
    data = next(directory.glob("single-5.data*"))
    bytes_there = bytearray(data.read_bytes())
    data.write_bytes(bytes(255 - byte for byte in bytes_there))
    show_failure("damaged values", lambda: restore(good, "w"))
    data.write_bytes(bytes_there[:10])
    show_failure("values cut off", lambda: restore(good, "w"))
    index = directory / "single-5.index"
    index_bytes = index.read_bytes()
    index.write_bytes(index_bytes[:20] + bytes([255 - index_bytes[20]]) + index_bytes[21:])
    show_failure("a damaged index", lambda: restore(good, "w"))
    index.write_bytes(index_bytes[:-20])
    show_failure("an index cut off", lambda: restore(good, "w"))
    index.write_bytes(index_bytes)
    data.unlink()
    data.mkdir()
    show_failure("a directory instead of values", lambda: restore(good, "w"))
    data.rmdir()
    index.unlink()
    index.mkdir()
    show_failure("a directory instead of an index", lambda: restore(good, "w"))
    index.rmdir()
    refused(cluster, directory)
    show("nothing temporary left", [path.name for path in directory.iterdir() if re.search("temp", path.name)])


def refused(cluster, directory):
    """Places where nothing can be written, and parts that are not there."""

    def run(make):
        with tf.Graph().as_default() as graph, tf.device("/job:ps/task:1"):
            op = make()
            with session(cluster.target(), graph) as sess:
                return sess.run(op)

    def save(prefix):
        return tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["w"], shape_and_slices=[""], tensors=[tf.constant([1.0])])

    def merge(*prefixes):
        return tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=tf.constant(prefixes, tf.string), destination_prefix=str(directory / "merged")
        )

    file = directory / "a_file"
    file.touch()
    show_failure("below a file", lambda: run(lambda: save(f"{file}/w")))
    show_failure("below nothing", lambda: run(lambda: save(f"{directory}/a/b/c")))
    show_failure("too long a name", lambda: run(lambda: save(str(directory / ("n" * 300)))))
    show_failure("no parts to join", lambda: run(merge))
    show_failure("parts that are not there", lambda: run(lambda: merge(str(directory / "absent"))))
    show("nothing joined", [path.name for path in directory.glob("merged*")])
