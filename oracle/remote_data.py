"""A stock client reads and writes data in object stores through a server, while the stores fail now and then.

    python remote_data.py FERROFLOW

Records, tables, vocabularies, text, CSV, event files and checkpoints of the first format, in `s3://`, in `gs://` and
behind `http://`. The store is moto's, which Google's interface for objects is close enough to: only the header that
names the source of a copy is called otherwise. Stock's own server has no such file systems, so it gets the same data
from local files, and what each server says must be equal; files that the server wrote are read with stock's readers.
"""

import http.server
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import environment
from remote_files import Faults, Quiet

import boto3
import numpy as np
import tensorflow as tf
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

v1 = tf.compat.v1
BUCKET = "data"


class GoogleNames:
    """The store under Google's name for the one header that differs; requests without a signature are let in."""

    SIGNATURE = "AWS4-HMAC-SHA256 Credential=tester/20250101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"

    def __init__(self, application):
        self.application = application

    def __call__(self, environ, start_response):
        if "HTTP_X_GOOG_COPY_SOURCE" in environ:
            environ["HTTP_X_AMZ_COPY_SOURCE"] = environ.pop("HTTP_X_GOOG_COPY_SOURCE")
        if not environ.get("HTTP_AUTHORIZATION", "").startswith("AWS4"):
            environ["HTTP_AUTHORIZATION"] = self.SIGNATURE
        return self.application(environ, start_response)


class Ranges(http.server.SimpleHTTPRequestHandler):
    """Files of a directory, whole or in ranges; every fourth request fails."""

    requests = itertools.count(1)
    directory = None

    def log_message(self, *arguments):
        """Requests are not the test's output."""

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_content):
        path = pathlib.Path(Ranges.directory) / self.path.lstrip("/")
        if next(Ranges.requests) % 4 == 0:
            self.send_error(503)
            return
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        first, last = 0, len(content) - 1
        wanted = self.headers.get("Range")
        if wanted:
            start, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end or last), last)
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(last - first + 1))
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.send_header("ETag", '"1"')
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        if with_content:
            self.wfile.write(content[first : last + 1])


def main():
    v1.disable_eager_execution()
    faults = Faults(GoogleNames(DomainDispatcherApplication(create_backend_app)))
    store = make_server("127.0.0.1", 0, faults, threaded=True, request_handler=Quiet)
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
    for server in (store, pages):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{store.server_port}"
    os.environ.update(AWS_ACCESS_KEY_ID="tester", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=BUCKET)
    with tempfile.TemporaryDirectory() as directory:
        data = pathlib.Path(directory) / "data"
        data.mkdir()
        Ranges.directory = data
        write_inputs(data)
        for file in data.iterdir():
            client.upload_file(str(file), BUCKET, f"in/{file.name}")
        settings = {"AWS_ENDPOINT_URL": endpoint, "STORAGE_EMULATOR_HOST": endpoint}
        server = subprocess.Popen(
            [sys.argv[1], "serve", "--port", "0", "--log", "error"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | settings,
        )
        try:
            target = server.stdout.readline().split()[-1]
            faults.every = 5
            trials(target, client, data, f"http://127.0.0.1:{pages.server_port}")
        finally:
            server.kill()
            server.wait()
        print("requests failed", faults.failed > 0)


def write_inputs(data):
    for name, options in (("plain", None), ("zipped", "GZIP")):
        with tf.io.TFRecordWriter(str(data / f"{name}.tfrecord"), options) as writer:
            for i in range(2000):
                writer.write(f"record {i} ".encode() * 20)
    (data / "words.txt").write_text("".join(f"word{i}\n" for i in range(500)))
    (data / "table.csv").write_text("a,b\n" + "".join(f"{i},{i / 4}\n" for i in range(300)))
    (data / "twice.txt").write_text("a\nb\na\n")
    (data / "cut.tfrecord").write_bytes((data / "plain.tfrecord").read_bytes()[:-7])
    (data / "empty").write_bytes(b"")


def total(dataset):
    """The number of elements and of their bytes."""
    count, size = dataset.reduce(
        (np.int64(0), np.int64(0)),
        lambda state, text: (state[0] + 1, state[1] + tf.cast(tf.strings.length(text), tf.int64)),
    )
    return [count, size]


def read(target, root):
    """Asks a server for the inputs in a directory: values, or the kind of failure."""
    said = {}

    def attempt(label, make):
        with tf.Graph().as_default():
            fetch, start = make()
            with v1.Session(target) as sess:
                try:
                    sess.run([start, v1.tables_initializer()])
                    said[label] = np.array(sess.run(fetch)).tolist()
                except tf.errors.OpError as error:
                    said[label] = type(error).__name__

    none = tf.no_op
    attempt("records", lambda: (total(tf.data.TFRecordDataset(f"{root}/plain.tfrecord")), none()))
    attempt("zipped", lambda: (total(tf.data.TFRecordDataset(f"{root}/zipped.tfrecord", "GZIP")), none()))
    attempt("cut", lambda: (total(tf.data.TFRecordDataset(f"{root}/cut.tfrecord")), none()))
    attempt("lines", lambda: (total(tf.data.TextLineDataset(f"{root}/words.txt")), none()))
    attempt(
        "fixed", lambda: (total(tf.data.FixedLengthRecordDataset(f"{root}/words.txt", 5, footer_bytes=390 % 5)), none())
    )
    attempt("missing", lambda: (total(tf.data.TFRecordDataset(f"{root}/nothing")), none()))
    attempt("whole", lambda: (tf.strings.length(tf.io.read_file(f"{root}/table.csv")), none()))
    attempt("empty", lambda: (tf.strings.length(tf.io.read_file(f"{root}/empty")), none()))
    attempt("no file", lambda: (tf.io.read_file(f"{root}/nothing"), none()))

    def columns():
        rows = tf.data.experimental.CsvDataset(f"{root}/table.csv", [tf.int64, tf.float32], header=True)
        return list(rows.reduce((np.int64(0), 0.0), lambda state, row: (state[0] + row[0], state[1] + row[1]))), none()

    def vocabulary(name):
        lines = tf.lookup.TextFileInitializer(f"{root}/{name}", tf.string, -2, tf.int64, -1)
        table = tf.lookup.StaticHashTable(lines, -1)
        return [*tf.unstack(table.lookup(tf.constant(["word7", "word499", "nothing"]))), table.size()], none()

    attempt("csv", columns)
    attempt("vocabulary", lambda: vocabulary("words.txt"))
    attempt("twice", lambda: vocabulary("twice.txt"))
    attempt("no vocabulary", lambda: vocabulary("nothing"))
    return said


def trials(target, client, data, pages):
    expected = read("", str(data))
    print("stock, local files:", expected)
    for scheme, root in (("s3", f"s3://{BUCKET}/in"), ("gs", f"gs://{BUCKET}/in"), ("http", pages)):
        said = read(target, root)
        print(scheme, "reads alike:", {key: value for key, value in said.items() if value != expected[key]} or True)
    for scheme in ("s3", "gs"):
        write(target, client, f"{scheme}://{BUCKET}", f"out-{scheme}")


def write(target, client, root, directory):
    """Files that the server writes, as stock reads them after a download."""

    def downloaded(name):
        with tempfile.NamedTemporaryFile(delete=False) as file:
            client.download_fileobj(BUCKET, f"{directory}/{name}", file)
        return file.name

    large = np.arange(5 << 20, dtype=np.float32)
    with tf.Graph().as_default(), v1.Session(target) as sess:
        base = f"{root}/{directory}"
        sess.run(tf.raw_ops.WriteFile(filename=f"{base}/text", contents="some text"))
        sess.run(tf.raw_ops.Save(filename=f"{base}/first", tensor_names=["v"], data=[large]))
        found = sess.run(tf.io.matching_files(f"{base}/*"))
        print("written", [name.decode().removeprefix(base) for name in found])
        back = sess.run(tf.raw_ops.Restore(file_pattern=f"{base}/first", tensor_name="v", dt=tf.float32))
        reader = v1.train.NewCheckpointReader(downloaded("first"))
        print("first format", np.array_equal(back, large), np.array_equal(reader.get_tensor("v"), large))
        pipeline = tf.data.Dataset.range(50).map(tf.strings.as_string)
        sess.run(
            tf.raw_ops.DatasetToTFRecord(
                input_dataset=tf.data.experimental.to_variant(pipeline), filename=f"{base}/records", compression_type=""
            )
        )
        records = list(v1.io.tf_record_iterator(downloaded("records")))
        print("records", len(records), records[-1])
        writer = tf.raw_ops.SummaryWriter(shared_name="w")
        start = tf.raw_ops.CreateSummaryFileWriter(
            writer=writer, logdir=f"{base}/events", max_queue=10, flush_millis=1000, filename_suffix=".x"
        )
        put = tf.raw_ops.WriteScalarSummary(writer=writer, step=np.int64(3), tag="loss", value=0.25)
        sess.run(start)
        sess.run(put)
        sess.run(tf.raw_ops.CloseSummaryWriter(writer=writer))
        name = next(
            entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET, Prefix=f"{directory}/events/")["Contents"]
        )
        events = list(v1.train.summary_iterator(downloaded(name.removeprefix(f"{directory}/"))))
        print("events", [(event.step, value.tag) for event in events for value in event.summary.value])


if __name__ == "__main__":
    main()
