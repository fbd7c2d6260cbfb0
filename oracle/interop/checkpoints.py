"""Checkpoints: what the server saves stock reads, what stock saves the server restores, however variables were cut."""

import glob
import os
import pathlib
import tempfile

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

TYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "bool",
    "complex64",
    "complex128",
]
TABLE = np.arange(35, dtype=np.float32).reshape(7, 5)
LOCAL = ""


def run(target):
    with tempfile.TemporaryDirectory() as directory:
        for name, part in PARTS.items():
            print(f"-- {name}", flush=True)
            with tf.Graph().as_default():
                part(target, os.path.join(directory, name))


def contents(prefix):
    """Everything in a checkpoint, as stock reads it."""
    reader = tf.train.load_checkpoint(prefix)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def values():
    numbers = {dtype: tf.cast(np.arange(6).reshape(2, 3), dtype) for dtype in TYPES}
    return numbers | {
        "string": tf.constant(["ab", "", "c" * 300]),
        "empty": tf.zeros([0, 3]),
        "scalar": tf.constant(7, tf.int64),
    }


def types(target, prefix):
    named = values()
    variables = {
        name: v1.get_variable(name, initializer=value, use_resource=i % 2 == 0)
        for i, (name, value) in enumerate(named.items())
    }
    saver, init = v1.train.Saver(), v1.global_variables_initializer()
    for writer, reader in [(target, LOCAL), (LOCAL, target)]:
        path = f"{prefix}_{'local' if writer == LOCAL else 'server'}"
        with session(writer) as sess:
            sess.run(init)
            saver.save(sess, path)
        show("saved", contents(path))
        with session(reader) as sess:
            saver.restore(sess, path)
            show(
                "restored",
                sess.run(
                    {
                        name: tf.cast(v, tf.float32) if v.dtype.base_dtype == tf.bfloat16 else v
                        for name, v in variables.items()
                    }
                ),
            )


def table(partitioner):
    return v1.get_variable(
        "table",
        TABLE.shape,
        initializer=lambda shape, dtype, partition_info: tf.constant(cut(shape, partition_info)),
        partitioner=partitioner,
    )


def cut(shape, info):
    start = info.var_offset if info else [0, 0]
    return TABLE[start[0] : start[0] + shape[0], start[1] : start[1] + shape[1]]


def partitions(target, prefix):
    cuts = {
        "whole": None,
        "rows_2": v1.fixed_size_partitioner(2),
        "rows_3": v1.fixed_size_partitioner(3),
        "columns_2": v1.fixed_size_partitioner(2, axis=1),
    }
    for saved, partitioner in cuts.items():
        for writer in (target, LOCAL):
            path = f"{prefix}_{saved}_{'local' if writer == LOCAL else 'server'}"
            with tf.Graph().as_default():
                table(partitioner) if partitioner else v1.get_variable("table", initializer=TABLE)
                with session(writer) as sess:
                    sess.run(v1.global_variables_initializer())
                    v1.train.Saver(sharded=True).save(sess, path)
            show(f"{saved} as stock reads it", contents(path))
            for restored, other in cuts.items():
                with tf.Graph().as_default():
                    variable = table(other) if other else v1.get_variable("table", initializer=TABLE * 0)
                    with session(target if writer == LOCAL else LOCAL) as sess:
                        v1.train.Saver().restore(sess, path)
                        show(
                            f"{saved} to {restored}",
                            bool(np.array_equal(sess.run(tf.convert_to_tensor(variable)), TABLE)),
                        )


def three_shards_on_two(target, prefix):
    parts = [f"{prefix}_temp/part-{i:05}-of-00003" for i in range(3)]
    specs = ["7 5 0,2:-", "7 5 2,1:-", "7 5 3,4:-"]
    rows = [TABLE[:2], TABLE[2:3], TABLE[3:]]
    saves = [
        tf.raw_ops.SaveV2(
            prefix=p, tensor_names=["table", f"own_{i}"], shape_and_slices=[spec, ""], tensors=[part, np.int32(i)]
        )
        for i, (p, spec, part) in enumerate(zip(parts, specs, rows))
    ]
    with session(target) as sess:
        sess.run(saves)
        sess.run(tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=prefix))
        show("merged", contents(prefix))
        show("parts left", glob.glob(f"{prefix}_temp*"))
        for spec in ["7 5 0,4:-", "7 5 4,3:-", "7 5 1,5:2,2", "7 5 -:4,1", "7 5 6,1:0,1"]:
            show(
                spec,
                sess.run(
                    tf.raw_ops.RestoreV2(
                        prefix=prefix, tensor_names=["table"], shape_and_slices=[spec], dtypes=[tf.float32]
                    )
                ),
            )


def replaced(target, prefix):
    """The same prefix again and again."""
    step, big = v1.placeholder(tf.int64, []), v1.placeholder(tf.float32, [1000])
    save = tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=["step", "big"], shape_and_slices=["", ""], tensors=[step, big]
    )
    part = tf.raw_ops.SaveV2(prefix=f"{prefix}_temp/part", tensor_names=["step"], shape_and_slices=[""], tensors=[step])
    merge = tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=[f"{prefix}_temp/part"], destination_prefix=prefix)
    restore = tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["step"], shape_and_slices=[""], dtypes=[tf.int64])
    with session(target) as sess:
        for i in range(5):
            sess.run(save, {step: i, big: np.full(1000, i)})
            show("stock reads", contents(prefix)["step"])
            show("server reads", sess.run(restore))
            sess.run(part, {step: i + 100})
            sess.run(merge)
            show("merged", [contents(prefix), sess.run(restore)])
    show("files", len(glob.glob(f"{prefix}.*")) <= 3)


def first_format(target, prefix):
    table(v1.fixed_size_partitioner(3))
    v1.get_variable("words", initializer=tf.constant(["a", "", "ccc"]))
    v1.get_variable("step", initializer=tf.constant(7, tf.int64))
    with session(LOCAL) as sess:
        sess.run(v1.global_variables_initializer())
        v1.train.Saver(write_version=v1.train.SaverDef.V1).save(sess, prefix, write_meta_graph=False)
    for partitioner in (None, v1.fixed_size_partitioner(2)):
        with tf.Graph().as_default():
            variable = table(partitioner) if partitioner else v1.get_variable("table", initializer=TABLE * 0)
            others = [
                v1.get_variable("words", initializer=tf.constant(["", "", ""])),
                v1.get_variable("step", initializer=tf.constant(0, tf.int64)),
            ]
            with session(target) as sess:
                v1.train.Saver().restore(sess, prefix)
                show("restored", sess.run([tf.convert_to_tensor(variable), *others]))
                show("Restore", sess.run(tf.raw_ops.Restore(file_pattern=prefix, tensor_name="table", dt=tf.float32)))
                show(
                    "RestoreSlice",
                    sess.run(
                        tf.raw_ops.RestoreSlice(
                            file_pattern=prefix, tensor_name="table", shape_and_slice="7 5 1,5:2,2", dt=tf.float32
                        )
                    ),
                )
                show_failure(
                    "no such tensor",
                    lambda: sess.run(tf.raw_ops.Restore(file_pattern=prefix, tensor_name="none", dt=tf.float32)),
                )
                show_failure(
                    "another type",
                    lambda: sess.run(tf.raw_ops.Restore(file_pattern=prefix, tensor_name="table", dt=tf.int32)),
                )
                show_failure(
                    "another shape",
                    lambda: sess.run(
                        tf.raw_ops.RestoreSlice(
                            file_pattern=prefix, tensor_name="table", shape_and_slice="6 5 1,5:2,2", dt=tf.float32
                        )
                    ),
                )
                show_failure(
                    "no such file",
                    lambda: sess.run(
                        tf.raw_ops.Restore(file_pattern=f"{prefix}-none", tensor_name="table", dt=tf.float32)
                    ),
                )


def first_format_saved(target, prefix):
    """Files of the first format that the server writes, as stock reads them, and what neither writes."""
    plain = {name: value for name, value in values().items() if name != "bfloat16"}
    slices = [("4 6 0,2:-", np.ones([2, 6])), ("4 6 2,2:0,3", np.zeros([2, 3])), ("4 6 2,2:3,3", np.full([2, 3], 7.0))]
    names = v1.placeholder(tf.string, [None])
    one = tf.constant([1.0, 2.0])
    with session(target) as sess:
        sess.run(tf.raw_ops.Save(filename=prefix, tensor_names=list(plain), data=list(plain.values())))
        restore = {
            name: tf.raw_ops.Restore(file_pattern=prefix, tensor_name=name, dt=value.dtype)
            for name, value in plain.items()
        }
        with session(LOCAL) as local:
            show("saved", [local.run(restore), sess.run(restore)])
        specs, parts = zip(*slices)
        sliced = f"{prefix}_sliced"
        sess.run(tf.raw_ops.SaveSlices(filename=sliced, tensor_names=["t"] * 3, shapes_and_slices=specs, data=parts))
        whole = tf.raw_ops.Restore(file_pattern=sliced, tensor_name="t", dt=tf.float64)
        with session(LOCAL) as local:
            show("restored", [sess.run(whole), local.run(whole)])
        sess.run(v1.get_variable("v", initializer=np.float32([1, 2, 3])).initializer)
        show(
            "saver",
            v1.train.Saver(write_version=v1.train.SaverDef.V1).save(sess, f"{prefix}_v", write_meta_graph=False)
            is not None,
        )
        show("of the saver", contents(f"{prefix}_v"))
        show("files", sorted(os.path.basename(path) for path in glob.glob(prefix + "*")))
        for label, save in {
            "no directory": tf.raw_ops.Save(filename=f"{prefix}_dir/x", tensor_names=names, data=[one]),
            "two types": tf.raw_ops.Save(filename=prefix, tensor_names=["a", "a"], data=[one, tf.constant([1, 2])]),
            "two shapes": tf.raw_ops.Save(filename=prefix, tensor_names=["a", "a"], data=[one, one[:1]]),
            "unsigned": tf.raw_ops.Save(filename=prefix, tensor_names=names, data=[tf.cast(one, tf.uint32)]),
            "bfloat16": tf.raw_ops.Save(filename=prefix, tensor_names=names, data=[tf.cast(one, tf.bfloat16)]),
            "slice": tf.raw_ops.SaveSlices(
                filename=prefix, tensor_names=names, shapes_and_slices=["4 0,3"], data=[one]
            ),
            "spec": tf.raw_ops.SaveSlices(filename=prefix, tensor_names=names, shapes_and_slices=["4 0"], data=[one]),
        }.items():
            show_failure(label, lambda: sess.run(save, {names: ["a"]}))
        show_failure(
            "names",
            lambda: sess.run(tf.raw_ops.Save(filename=prefix, tensor_names=names, data=[one]), {names: ["a", "b"]}),
        )
        show("still there", sess.run(restore["scalar"]))
        overlapping = f"{prefix}_overlapping"
        pair = ["4 0,2", "4 1,2"]
        sess.run(
            tf.raw_ops.SaveSlices(
                filename=overlapping, tensor_names=["a", "a"], shapes_and_slices=pair, data=[one, one]
            )
        )
        show_failure(
            "overlapping",
            lambda: sess.run(tf.raw_ops.Restore(file_pattern=overlapping, tensor_name="a", dt=tf.float32)),
        )


def failures(target, prefix):
    def restore(path, name="big", spec="", dtype=tf.float32):
        return lambda: sess.run(
            tf.raw_ops.RestoreV2(prefix=path, tensor_names=[name], shape_and_slices=[spec], dtypes=[dtype])
        )[0][:1]

    def save(path):
        big = np.arange(100000, dtype=np.float32)
        words = np.array(["word"] * 1000)
        return lambda: sess.run(
            tf.raw_ops.SaveV2(
                prefix=path, tensor_names=["big", "words"], shape_and_slices=["", ""], tensors=[big, words]
            )
        )

    def damaged(name, change):
        path = f"{prefix}_{name}"
        with session(LOCAL) as local:
            local.run(
                tf.raw_ops.SaveV2(
                    prefix=path,
                    tensor_names=["big", "words"],
                    shape_and_slices=["", ""],
                    tensors=[np.arange(100000, dtype=np.float32), np.array(["word"] * 1000)],
                )
            )
        suffix, edit = change
        file = f"{path}.{suffix}"
        if edit is None:
            os.remove(file)
        else:
            pathlib.Path(file).write_bytes(edit(bytearray(pathlib.Path(file).read_bytes())))
        show_failure(f"{name}: big", restore(path))
        show_failure(f"{name}: words", restore(path, "words", dtype=tf.string))

    def flip(at):
        def edit(data):
            data[at] ^= 0x40
            return data

        return edit

    with session(target) as sess:
        save(prefix)()
        show("saved", restore(prefix)())
        show_failure("missing checkpoint", restore(f"{prefix}_none"))
        show_failure("missing tensor", restore(prefix, "none"))
        show_failure("another type", restore(prefix, dtype=tf.int32))
        show_failure("another shape", restore(prefix, spec="99 0,9"))
        show_failure("slice out of range", restore(prefix, spec="100000 99999,9"))
        show_failure("bad slice", restore(prefix, spec="100000 x"))
        show_failure("directory that cannot be made", save(f"{prefix}_no/such/place"))
        data = "data-00000-of-00001"
        damaged("flipped_float", (data, flip(1000)))
        damaged("flipped_last_byte", (data, flip(-1)))
        damaged("flipped_length", (data, flip(400010)))
        damaged("short_data", (data, lambda data: data[:300000]))
        damaged("short_strings", (data, lambda data: data[:-3]))
        damaged("empty_data", (data, lambda data: data[:0]))
        damaged("no_data", (data, None))
        damaged("short_index", ("index", lambda data: data[:-10]))
        damaged("empty_index", ("index", lambda data: data[:0]))
        damaged("flipped_index", ("index", flip(20)))
        damaged("flipped_magic", ("index", flip(-1)))
        with open(f"{prefix}_garbage", "wb") as file:
            file.write(b"not a checkpoint " * 10)
        show_failure("garbage as first format", restore(f"{prefix}_garbage"))
        show_failure(
            "merge of nothing",
            lambda: sess.run(
                tf.raw_ops.MergeV2Checkpoints(
                    checkpoint_prefixes=[f"{prefix}_none"], destination_prefix=f"{prefix}_merged"
                )
            ),
        )
        duplicate = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[f"{prefix}_a", f"{prefix}_b"], destination_prefix=f"{prefix}_merged"
        )
        save(f"{prefix}_a")()
        save(f"{prefix}_b")()
        show_failure("merge of duplicates", lambda: sess.run(duplicate))
        show_failure(
            "same name twice",
            lambda: sess.run(
                tf.raw_ops.SaveV2(
                    prefix=f"{prefix}_twice", tensor_names=["x", "x"], shape_and_slices=["", ""], tensors=[1, 2]
                )
            ),
        )
        show_failure(
            "slice of another shape",
            lambda: sess.run(
                tf.raw_ops.SaveV2(
                    prefix=f"{prefix}_slice", tensor_names=["x"], shape_and_slices=["4 0,2"], tensors=[np.zeros(3)]
                )
            ),
        )


def addresses(target, prefix):
    """Checkpoints under addresses of files, and of file systems that are not there."""
    v = v1.get_variable("v", initializer=np.float32([1, 2]))
    saver, init = v1.train.Saver(), v1.global_variables_initializer()
    with session(target) as sess:
        sess.run(init)
        for name in (f"file://{prefix}", f"file://localhost{prefix}_host"):
            feed = {saver.saver_def.filename_tensor_name: name}
            show("saved", sess.run(saver.saver_def.save_tensor_name, feed) == name.encode())
            sess.run(v.assign([5.0, 6.0]))
            sess.run(saver.saver_def.restore_op_name, feed)
            show("restored", sess.run(v))
        show("files", sorted(os.path.basename(path) for path in glob.glob(prefix + "*")))
        for scheme in ("hdfs", "FILE", "x.y"):
            feed = {saver.saver_def.filename_tensor_name: f"{scheme}://somewhere/model"}
            for what, node in (
                ("save", saver.saver_def.save_tensor_name),
                ("restore", saver.saver_def.restore_op_name),
            ):
                try:
                    sess.run(node, feed)
                except tf.errors.OpError as error:
                    show(
                        f"{what} {scheme}",
                        [type(error).__name__, f"File system scheme '{scheme}' not implemented" in error.message],
                    )
        merge = tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=[f"file://{prefix}"],
            destination_prefix=f"file://{prefix}_merged/model",
            delete_old_dirs=False,
        )
        sess.run(merge)
        show("merged", contents(f"{prefix}_merged/model"))


PARTS = {
    "types": types,
    "partitions": partitions,
    "three_shards_on_two": three_shards_on_two,
    "replaced": replaced,
    "first_format": first_format,
    "first_format_saved": first_format_saved,
    "failures": failures,
    "addresses": addresses,
}
