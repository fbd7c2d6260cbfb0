"""Record and event files between Ferroflow and stock, both ways.

`files.py write DIRECTORY` writes with stock what the test `files` reads; `files.py check DIRECTORY` checks with stock
what the test wrote.
"""

import os
import pathlib
import sys

import environment

import numpy as np
import tensorflow as tf

PACKINGS = ["", "GZIP", "ZLIB"]


def examples():
    """Examples with a feature of each kind; the last lacks one."""
    for i in range(4):
        feature = {
            "image": tf.train.Feature(float_list=tf.train.FloatList(value=[i + 0.5, -i])),
            "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"w"] * i)),
        }
        if i < 3:
            feature["label"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[i]))
        yield tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def sequences():
    """Sequence examples of one to three steps, with a word more in every step."""
    for length in range(1, 4):
        steps = [tf.train.Feature(float_list=tf.train.FloatList(value=[i, i + 0.5])) for i in range(length)]
        words = [tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"w"] * i)) for i in range(length)]
        context = {"length": tf.train.Feature(int64_list=tf.train.Int64List(value=[length]))}
        lists = {"x": tf.train.FeatureList(feature=steps), "words": tf.train.FeatureList(feature=words)}
        yield tf.train.SequenceExample(
            context=tf.train.Features(feature=context), feature_lists=tf.train.FeatureLists(feature_list=lists)
        ).SerializeToString()


def orders():
    """Orders of shuffled numbers, as lines of: elements, buffer, seed, passes, numbers."""
    for elements, buffer, seed, passes in [(10, 4, 7, 3), (50, 50, 1, 2), (7, 100, 12345, 2), (9, 1, 3, 1)]:
        dataset = tf.data.Dataset.range(elements).shuffle(buffer, seed=seed).repeat(passes)
        numbers = [int(x) for x in dataset]
        yield " ".join(map(str, [elements, buffer, seed, passes, *numbers]))
    mixed = tf.data.Dataset.range(5).interleave(
        lambda x: tf.data.Dataset.from_tensors(x).repeat(x + 1), cycle_length=2, block_length=2
    )
    yield "interleave " + " ".join(str(int(x)) for x in mixed)


def write(directory):
    for packing in PACKINGS:
        with tf.io.TFRecordWriter(f"{directory}/stock{packing}.tfrecord", packing) as writer:
            for example in examples():
                writer.write(example)
    with tf.io.TFRecordWriter(f"{directory}/sequences.tfrecord") as writer:
        for example in sequences():
            writer.write(example)
    with open(f"{directory}/orders.txt", "w") as file:
        file.writelines(line + "\n" for line in orders())
    with tf.Graph().as_default() as graph:
        tf.constant(1.0, name="one")
        writer = tf.compat.v1.summary.FileWriter(f"{directory}/stock-events", graph)
        values = np.linspace(-3, 5, 100)
        histogram = tf.compat.v1.summary.histogram("weights", tf.constant(values))
        with tf.compat.v1.Session() as session:
            writer.add_summary(session.run(histogram), 3)
        writer.close()


def check(directory):
    expected = list(examples())
    for packing in PACKINGS:
        records = tf.data.TFRecordDataset(f"{directory}/ours{packing}.tfrecord", compression_type=packing)
        found = [tf.train.Example.FromString(record.numpy()) for record in records]
        assert found == [tf.train.Example.FromString(example) for example in expected], packing
    (name,) = os.listdir(f"{directory}/our-events")
    assert name.startswith("events.out.tfevents."), name
    events = list(tf.compat.v1.train.summary_iterator(f"{directory}/our-events/{name}"))
    assert events[0].file_version == "brain.Event:2"
    assert events[0].source_metadata.writer == "tensorflow.core.util.events_writer"
    (stock,) = os.listdir(f"{directory}/stock-events")
    stock = list(tf.compat.v1.train.summary_iterator(f"{directory}/stock-events/{stock}"))
    values = {}
    for event in events[1:]:
        assert event.wall_time > 1e9
        for value in event.summary.value:
            values[value.tag] = (event.step, value)
    assert values["loss"][0] == 5 and values["loss"][1].simple_value == 0.25
    histograms = [v for e in stock for v in e.summary.value if v.tag == "weights"]
    assert values["weights"][1].histo == histograms[0].histo
    assert tf.make_ndarray(values["note"][1].tensor) == [b"some *text*"]
    assert values["note"][1].metadata.plugin_data.plugin_name == "text"
    pixels = np.linspace(-1, 1, 2 * 3 * 5 * 3, dtype=np.float32).reshape(2, 3, 5, 3)
    with tf.Graph().as_default():
        op = tf.compat.v1.summary.image("picture", tf.constant(pixels))
        with tf.compat.v1.Session() as session:
            stock_images = tf.compat.v1.Summary.FromString(session.run(op)).value
    for wanted in stock_images:
        image = values[wanted.tag][1].image
        assert (image.height, image.width, image.colorspace) == (3, 5, 3)
        decoded = [tf.io.decode_png(i.encoded_image_string).numpy() for i in (image, wanted.image)]
        assert np.array_equal(*decoded), wanted.tag
    compare_nodes(directory, pixels)
    graphs = [tf.compat.v1.GraphDef.FromString(e.graph_def) for e in events if e.graph_def]
    assert [node.name for node in graphs[0].node] == ["one"]
    logs = [e.session_log for e in events if e.HasField("session_log")]
    assert [log.status for log in logs] == [1, 3] and logs[1].checkpoint_path == "model-5"
    ask_tensorboard(directory, pixels)
    print("agrees")


def compare_nodes(directory, pixels):
    """The summary nodes of a graph give what stock's give."""
    with tf.Graph().as_default():
        tf.compat.v1.summary.scalar("loss", tf.constant(0.25))
        tf.compat.v1.summary.histogram("weights", tf.constant(np.linspace(-3, 5, 100)))
        tf.compat.v1.summary.image("picture", tf.constant(pixels))
        with tf.compat.v1.name_scope("inner"):
            tf.compat.v1.summary.text("note", tf.constant(["some *text*"]))
        merged = tf.compat.v1.summary.merge_all()
        with tf.compat.v1.Session() as session:
            stock = tf.compat.v1.Summary.FromString(session.run(merged)).value
    ours = tf.compat.v1.Summary.FromString(pathlib.Path(directory, "summaries.pb").read_bytes()).value
    assert len(ours) == len(stock), (ours, stock)
    for found, wanted in zip(ours, stock):
        if found.HasField("image"):
            decoded = [tf.io.decode_png(v.image.encoded_image_string).numpy() for v in (found, wanted)]
            assert np.array_equal(*decoded), wanted.tag
            found.image.encoded_image_string = wanted.image.encoded_image_string
        assert found == wanted, (found, wanted)


def ask_tensorboard(directory, pixels):
    """TensorBoard's own reader sees the same in our events and in those that stock writes of the same things."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tf.Graph().as_default():
        summaries = [
            tf.compat.v1.summary.scalar("loss", tf.constant(0.25)),
            tf.compat.v1.summary.histogram("weights", tf.constant(np.linspace(-3, 5, 100))),
            tf.compat.v1.summary.image("picture", tf.constant(pixels)),
            tf.compat.v1.summary.text("note", tf.constant(["some *text*"])),
        ]
        writer = tf.compat.v1.summary.FileWriter(f"{directory}/twin-events")
        with tf.compat.v1.Session() as session:
            for summary in session.run(summaries):
                writer.add_summary(summary, 5)
    graph = tf.Graph()
    with graph.as_default():
        tf.no_op(name="one")
    writer.add_graph(graph)
    writer.close()

    def read(name):
        events = EventAccumulator(
            f"{directory}/{name}", size_guidance=dict.fromkeys(("scalars", "histograms", "images", "tensors"), 0)
        )
        events.Reload()
        return events

    ours, stock = read("our-events"), read("twin-events")
    assert ours.Tags() == stock.Tags(), (ours.Tags(), stock.Tags())
    assert [(e.step, e.value) for e in ours.Scalars("loss")] == [(5, 0.25)]
    histograms = [[(e.step, e.histogram_value) for e in events.Histograms("weights")] for events in (ours, stock)]
    assert histograms[0] == histograms[1], histograms
    for tag in stock.Tags()["images"]:
        found, wanted = ours.Images(tag), stock.Images(tag)
        assert [(e.step, e.width, e.height) for e in found] == [(e.step, e.width, e.height) for e in wanted]
        decoded = [tf.io.decode_png(images[0].encoded_image_string).numpy() for images in (found, wanted)]
        assert np.array_equal(*decoded), tag
    notes = [
        [(e.step, tf.make_ndarray(e.tensor_proto).tolist()) for e in events.Tensors("note")] for events in (ours, stock)
    ]
    assert notes[0] == notes[1], notes
    names = [[(node.name, node.op) for node in events.Graph().node] for events in (ours, stock)]
    assert names[0] == names[1], names


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
