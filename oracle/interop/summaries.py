"""Event files that the server writes, as stock's reader reads them."""

import glob
import os
import tempfile

from report import session, show, show_failure, v1

import numpy as np
import tensorflow as tf

raw = tf.raw_ops


def run(target):
    with tempfile.TemporaryDirectory() as directory:
        for name, part in {"kinds": kinds, "queue": queue, "refusals": refusals}.items():
            print(f"-- {name}", flush=True)
            with tf.Graph().as_default():
                part(target, os.path.join(directory, name))


def writer(logdir, max_queue=100, name="writer"):
    handle = raw.SummaryWriter(shared_name=name + logdir)
    created = raw.CreateSummaryFileWriter(
        writer=handle, logdir=logdir, max_queue=max_queue, flush_millis=1000000, filename_suffix=".v2"
    )
    return handle, created


def events(logdir):
    """The contents of the event files of a directory, without times; images by their pixels."""
    lines = []
    for path in sorted(glob.glob(os.path.join(logdir, "events.out.tfevents.*"))):
        lines.append("a file" + path[path.rindex(".") :])
        for event in v1.train.summary_iterator(path):
            for value in event.summary.value:
                if value.HasField("image"):
                    pixels = tf.io.decode_png(value.image.encoded_image_string)
                    value.image.encoded_image_string = b""
                    with v1.Session() as local:
                        lines.append(repr(local.run(pixels).tolist()))
            event.wall_time = 0
            lines.append(str(event).replace("\n", " "))
    return lines


def kinds(target, logdir):
    handle, created = writer(logdir)
    step = tf.constant(7, tf.int64)
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="a", op="NoOp")
    summary = v1.Summary(value=[v1.Summary.Value(tag="raw", simple_value=3)])
    event = v1.Event(step=9, summary=summary)
    metadata = v1.SummaryMetadata(display_name="shown").SerializeToString()
    color = np.uint8([255, 0, 0, 255])
    writes = {
        "scalar": raw.WriteScalarSummary(writer=handle, step=step, tag="scalar", value=2.5),
        "whole": raw.WriteScalarSummary(writer=handle, step=step, tag="whole", value=np.int64(-3)),
        "histogram": raw.WriteHistogramSummary(writer=handle, step=step, tag="h", values=[-1.0, 0.0, 2.0, 2.5]),
        "truths": raw.WriteHistogramSummary(writer=handle, step=step, tag="b", values=[True, False, True]),
        "image": raw.WriteImageSummary(
            writer=handle, step=step, tag="i", tensor=np.float32(np.arange(12).reshape(1, 2, 2, 3)), bad_color=color
        ),
        "bytes": raw.WriteImageSummary(
            writer=handle,
            step=step,
            tag="u",
            tensor=np.uint8(np.arange(8).reshape(2, 2, 2, 1)),
            bad_color=color,
            max_images=1,
        ),
        "audio": raw.WriteAudioSummary(
            writer=handle, step=step, tag="a", tensor=np.float32([[0.0, 0.5, -1.0, 2.0]]), sample_rate=8000.0
        ),
        "tensor": raw.WriteSummary(
            writer=handle, step=step, tensor=[[1, 2], [3, 4]], tag="t", summary_metadata=metadata
        ),
        "text": raw.WriteSummary(writer=handle, step=step, tensor=["x", "y"], tag="s", summary_metadata=""),
        "graph": raw.WriteGraphSummary(writer=handle, step=step, tensor=graph.SerializeToString()),
        "raw": raw.WriteRawProtoSummary(writer=handle, step=step, tensor=[summary.SerializeToString()] * 2),
        "event": raw.ImportEvent(writer=handle, event=event.SerializeToString()),
    }
    flush, close = raw.FlushSummaryWriter(writer=handle), raw.CloseSummaryWriter(writer=handle)
    with session(target) as s:
        s.run(created)
        # Another file is not made of a writer that is there.
        s.run(created)
        for operation in writes.values():
            s.run(operation)
        s.run(flush)
        s.run(close)
    for line in events(logdir):
        show("event", line)


def queue(target, logdir):
    handle, created = writer(logdir, max_queue=2)
    write = raw.WriteScalarSummary(writer=handle, step=tf.constant(1, tf.int64), tag="x", value=1.0)
    with session(target) as s:
        s.run(created)
        for number in range(4):
            s.run(write)
            show("events", [number, len(events(logdir))])
        s.run(raw.CloseSummaryWriter(writer=handle))
        show("events", len(events(logdir)))


def refusals(target, logdir):
    handle, created = writer(logdir)
    step = tf.constant(0, tf.int64)
    write = raw.WriteScalarSummary(writer=handle, step=step, tag="x", value=1.0)
    spoiled = raw.WriteHistogramSummary(writer=handle, step=step, tag="x", values=[1.0, float("nan")])
    graph = raw.WriteGraphSummary(writer=handle, step=step, tensor="\xff\xff")
    summary = raw.WriteRawProtoSummary(writer=handle, step=step, tensor=["\xff\xff"])
    event = raw.ImportEvent(writer=handle, event="\xff\xff")
    with session(target) as s:
        show_failure("not created", lambda: s.run(write))
        s.run(created)
        for name, operation in {"nan": spoiled, "graph": graph, "summary": summary, "event": event}.items():
            show_failure(name, lambda operation=operation: s.run(operation))
        s.run(raw.CloseSummaryWriter(writer=handle))
        show_failure("closed", lambda: s.run(write))
