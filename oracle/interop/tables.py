"""Lookup tables: vocabularies in files, tables in checkpoints, classifiers of words, and the classes of tf.lookup."""

import os
import tempfile

from report import sentence, session, show, v1

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import lookup_ops


def run(target):
    with tempfile.TemporaryDirectory() as directory:
        for name, part in PARTS.items():
            print(f"-- {name}", flush=True)
            with tf.Graph().as_default():
                part(target, directory)


def show_error(label, call, directory):
    """Prints how `call` fails: class and first sentence, without what differs from run to run."""
    try:
        value = call()
    except tf.errors.OpError as error:
        print(f"{label}: {type(error).__name__}: {sentence(error).replace(directory, 'DIR')[:200]}", flush=True)
    else:
        show(label, value)


def write(directory, name, text):
    path = os.path.join(directory, name)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    return path


def vocabularies(target, directory):
    """Files good and bad."""
    files = {
        "plain": ("a\nb\nc\n", {}),
        "no_last_end": ("a\nb", {}),
        "carriage_returns": ("a\r\nb\r\n", {}),
        "duplicate": ("a\nb\na\n", {}),
        "empty_line": ("a\n\nb\n", {}),
        "empty": ("", {}),
        "sized": ("a\nb\nc\n", {"vocab_size": 2}),
        "too_small": ("a\n", {"vocab_size": 3}),
        "offset": ("a\nb\n", {"offset": 5}),
        "bytes": (b"\xff\xfe\n\x00a\n", {}),
        "long": ("".join(f"word{n}\n" for n in range(10000)), {}),
    }
    for name, (text, attrs) in files.items():
        with tf.Graph().as_default():
            path = write(directory, name, text)
            table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
            init = tf.raw_ops.InitializeTableFromTextFileV2(
                table_handle=table, filename=path, key_index=-2, value_index=-1, **attrs
            )
            found = tf.raw_ops.LookupTableFindV2(
                table_handle=table, keys=["a", "b", "word77", "c"], default_value=np.int64(-1)
            )
            size = tf.raw_ops.LookupTableSizeV2(table_handle=table)
            with session(target) as sess:
                show_error(f"{name} init", lambda: sess.run(init), directory)
                show_error(f"{name} again", lambda: sess.run(init), directory)
                show_error(f"{name} found", lambda: sess.run([found, size]), directory)
    columns = write(directory, "columns", "x\t1\t1.5\ny\t2\t-2\n")
    for key, value, indices, extra in [
        (tf.string, tf.int64, (0, 1), {}),
        (tf.string, tf.float32, (0, 2), {}),
        (tf.string, tf.int32, (0, 1), {"offset": 3}),
        (tf.int64, tf.string, (1, 0), {}),
        (tf.int64, tf.string, (-1, -2), {}),
        (tf.string, tf.float64, (0, 2), {}),
        (tf.string, tf.int64, (0, 3), {}),
        (tf.string, tf.int64, (0, 2), {}),
        (tf.string, tf.int64, (0, 1), {"delimiter": " "}),
        (tf.string, tf.float32, (0, -1), {}),
        (tf.string, tf.string, (-1, 0), {}),
    ]:
        with tf.Graph().as_default():
            table = tf.raw_ops.HashTableV2(key_dtype=key, value_dtype=value)
            init = tf.raw_ops.InitializeTableFromTextFileV2(
                table_handle=table, filename=columns, key_index=indices[0], value_index=indices[1], **extra
            )
            keys = ["x", "y", "z"] if key == tf.string else np.int64([0, 1, 2])
            default = "-" if value == tf.string else tf.cast(-1, value)
            found = tf.raw_ops.LookupTableFindV2(table_handle=table, keys=keys, default_value=default)
            with session(target) as sess:
                show_error(f"columns {key.name} {value.name} {indices}", lambda: sess.run(init), directory)
                show_error("found", lambda: sess.run(found), directory)
    for name in ("missing", ""):
        with tf.Graph().as_default():
            table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
            path = os.path.join(directory, name) if name else ""
            init = tf.raw_ops.InitializeTableFromTextFileV2(
                table_handle=table, filename=path, key_index=-2, value_index=-1
            )
            with session(target) as sess:
                show_error(f"file {name!r}", lambda: sess.run(init), directory)


def classifier(target, directory):
    """Words from a vocabulary file, their embeddings, a classifier; trained on the server."""
    path = write(directory, "words", "good\nbad\nfine\npoor\n")
    v1.set_random_seed(7)
    words = v1.placeholder(tf.string, [None, 2])
    labels = v1.placeholder(tf.float32, [None])
    table = lookup_ops.index_table_from_file(path, num_oov_buckets=2)
    embeddings = v1.get_variable("embeddings", initializer=np.linspace(-0.5, 0.5, 18, dtype=np.float32).reshape(6, 3))
    weights = v1.get_variable("weights", initializer=np.float32([0.3, -0.2, 0.1]))
    ids = table.lookup(words)
    logits = tf.reduce_sum(tf.reduce_mean(tf.gather(embeddings, ids), 1) * weights, 1)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
    train = v1.train.GradientDescentOptimizer(0.5).minimize(loss)
    feed = {words: [["good", "fine"], ["bad", "poor"], ["good", "unseen"], ["other", "bad"]], labels: [1, 0, 1, 0]}
    with session(target) as sess:
        sess.run([v1.global_variables_initializer(), v1.tables_initializer()])
        show("ids", sess.run(ids, feed))
        losses = [sess.run([loss, train], feed)[0] for _ in range(30)]
        show("losses", [f"{value:.4f}" for value in losses[::10]])
        show("decided", sess.run(logits > 0, feed))


def checkpoints(target, directory):
    """Tables that change are saved by either server and restored by the other."""
    mutable = lookup_ops.MutableHashTable(tf.string, tf.int64, -1, name="mutable")
    tensors = lookup_ops.MutableHashTable(tf.int64, tf.float32, [0.0, 0.0], name="tensors")
    dense = lookup_ops.DenseHashTable(
        tf.int64, tf.int64, default_value=-1, empty_key=0, deleted_key=-1, initial_num_buckets=8, name="dense"
    )
    text = lookup_ops.DenseHashTable(
        tf.string, tf.int64, default_value=-1, empty_key="", deleted_key="-", initial_num_buckets=8, name="text"
    )
    keys = np.arange(1, 12, dtype=np.int64) * 7
    words = [f"w{n}" for n in range(9)]
    fill = [
        mutable.insert(words, np.arange(9)),
        tensors.insert(keys[:3], np.arange(6, dtype=np.float32).reshape(3, 2)),
        dense.insert(keys, keys * 2),
        text.insert(words, np.arange(9)),
    ]
    look = [
        mutable.lookup(tf.constant(["w3", "none", "w8"])),
        tensors.lookup(tf.constant([7, 8], tf.int64)),
        dense.lookup(tf.constant([7, 8, 77], tf.int64)),
        text.lookup(tf.constant(["w3", "none", "w8"])),
        mutable.size(),
        tensors.size(),
        dense.size(),
        text.size(),
    ]
    saver = v1.train.Saver(v1.get_collection(v1.GraphKeys.SAVEABLE_OBJECTS))
    for writer, reader in [(target, ""), ("", target), (target, target)]:
        path = os.path.join(directory, "saved")
        with session(writer) as sess:
            sess.run(fill)
            saver.save(sess, path)
        with session(reader) as sess:
            saver.restore(sess, path)
            show("restored", sess.run(look))


def classes(target, directory):
    """The tables of tf.lookup in a graph."""
    static = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64)), -1
    )
    path = write(directory, "vocabulary", "x\ny\nz\n")
    initializer = tf.lookup.TextFileInitializer(
        path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    vocabulary = tf.lookup.StaticVocabularyTable(initializer, num_oov_buckets=3)
    strings = lookup_ops.index_to_string_table_from_file(path, default_value="?")
    mutable = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, "none")
    dense = tf.lookup.experimental.DenseHashTable(tf.string, tf.float32, -1.0, empty_key="", deleted_key="-")
    put = [
        mutable.insert(tf.constant([1, 2], tf.int64), tf.constant(["one", "two"])),
        dense.insert(tf.constant(["p", "q"]), tf.constant([0.5, 1.5])),
    ]
    remove = [mutable.remove(tf.constant([1], tf.int64)), dense.remove(tf.constant(["q"]))]
    look = [
        static.lookup(tf.constant([["b", "c"]])),
        vocabulary.lookup(tf.constant(["z", "q", "x", "r"])),
        strings.lookup(tf.constant([2, 0, 7], tf.int64)),
        mutable.lookup(tf.constant([1, 2, 3], tf.int64)),
        dense.lookup(tf.constant(["p", "q"])),
        static.size(),
        vocabulary.size(),
        mutable.size(),
        dense.size(),
    ]
    sparse = static.lookup(tf.sparse.from_dense([["a", "b"], ["c", "a"]])).values
    ragged = static.lookup(tf.ragged.constant([["a"], ["b", "c"]])).values
    with session(target) as sess:
        show_error("before", lambda: sess.run(look[0]), directory)
        sess.run(v1.tables_initializer())
        sess.run(put)
        show("tables", sess.run(look))
        sess.run(remove)
        show("removed", sess.run(look[3:5] + look[7:]))
        show("sparse", sess.run(sparse))
        show("ragged", sess.run(ragged))


def warm_start(target, directory):
    """A matrix whose rows another vocabulary has elsewhere."""
    old = write(directory, "old", "a\nb\nc\nd\n")
    new = write(directory, "new", "d\nx\nb\ny\na\n")
    for name, arguments in {
        "all": dict(new_vocab_offset=0, num_new_vocab=5),
        "part": dict(new_vocab_offset=1, num_new_vocab=3),
        "first_old": dict(new_vocab_offset=0, num_new_vocab=5, old_vocab_size=2),
        "none": dict(new_vocab_offset=5, num_new_vocab=0),
        "beyond": dict(new_vocab_offset=3, num_new_vocab=3),
    }.items():
        with tf.Graph().as_default():
            remapping = tf.raw_ops.GenerateVocabRemapping(new_vocab_file=new, old_vocab_file=old, **arguments)
            with session(target) as sess:
                show_error(name, lambda: list(sess.run(remapping)), directory)
    prefix = os.path.join(directory, "matrix")
    with tf.Graph().as_default(), session("") as sess:
        v1.get_variable("matrix", initializer=np.arange(12, dtype=np.float32).reshape(4, 3))
        v1.get_variable("vector", initializer=np.float32([1, 2]))
        sess.run(v1.global_variables_initializer())
        v1.train.Saver().save(sess, prefix, write_meta_graph=False)
    for name, arguments in {
        "rows": dict(row_remapping=[3, -1, 1], col_remapping=[], initializing_values=[7.0, 8, 9], num_cols=3),
        "columns": dict(row_remapping=[0, 2], col_remapping=[2, -1, 0], initializing_values=[7.0, 8], num_cols=3),
        "chunks": dict(
            row_remapping=[3, 0, 1], col_remapping=[], initializing_values=[], num_cols=3, max_rows_in_memory=2
        ),
        "few": dict(row_remapping=[-1], col_remapping=[], initializing_values=[1.0], num_cols=3),
        "many": dict(row_remapping=[1], col_remapping=[], initializing_values=[1.0], num_cols=3),
        "twice": dict(row_remapping=[1, 1], col_remapping=[], initializing_values=[], num_cols=3),
        "width": dict(row_remapping=[1], col_remapping=[], initializing_values=[], num_cols=2),
        "rank": dict(row_remapping=[1], col_remapping=[], initializing_values=[], num_cols=2, old_tensor_name="vector"),
        "name": dict(row_remapping=[1], col_remapping=[], initializing_values=[], num_cols=2, old_tensor_name="other"),
    }.items():
        with tf.Graph().as_default():
            loaded = tf.raw_ops.LoadAndRemapMatrix(
                **(
                    dict(ckpt_path=prefix, old_tensor_name="matrix", num_rows=len(arguments["row_remapping"]))
                    | arguments
                )
            )
            with session(target) as sess:
                show_error(name, lambda: sess.run(loaded), directory)


PARTS = {
    "warm_start": warm_start,
    "vocabularies": vocabularies,
    "classifier": classifier,
    "checkpoints": checkpoints,
    "classes": classes,
}
