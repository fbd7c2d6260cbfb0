"""A stock client saves, restores and lists checkpoints in an S3 bucket through a server, while the bucket's server fails.

    python remote_files.py FERROFLOW

Starts the object store in this process, with faults, and the Ferroflow binary with the environment that names it. Prints
what became of each trial. Stock's own server has no such file system, so the files are checked instead: they are read
with stock's reader.
"""

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import environment

import boto3
import numpy as np
import tensorflow as tf
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

v1 = tf.compat.v1
BUCKET = "models"


class Quiet(WSGIRequestHandler):
    def log_request(self, *arguments):
        """Requests are not the test's output."""


class Faults:
    """Answers requests by the object store, but for some: these fail as real stores do now and then."""

    def __init__(self, application):
        self.application = application
        self.every = 0
        self.requests = itertools.count(1)
        self.failed = 0

    def __call__(self, environ, start_response):
        if self.every and next(self.requests) % self.every == 0:
            self.failed += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return self.application(environ, start_response)


def main():
    faults = Faults(DomainDispatcherApplication(create_backend_app))
    store = make_server("127.0.0.1", 0, faults, threaded=True, request_handler=Quiet)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{store.server_port}"
    os.environ.update(AWS_ACCESS_KEY_ID="tester", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1")
    client = boto3.client("s3", endpoint_url=endpoint)
    client.create_bucket(Bucket=BUCKET)
    server = subprocess.Popen(
        [sys.argv[1], "serve", "--port", "0", "--log", "error"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"AWS_ENDPOINT_URL": endpoint},
    )
    try:
        target = server.stdout.readline().split()[-1]
        trials(target, client, faults)
    finally:
        server.kill()
        server.wait()


def names(client, prefix):
    found = client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return sorted(entry["Key"] for entry in found)


def trials(target, client, faults):
    v1.disable_eager_execution()
    # Larger than a part, so that it is uploaded in several.
    large = np.arange(6 << 20, dtype=np.float32)
    v = v1.get_variable("v", initializer=large, use_resource=True)
    w = v1.get_variable("w", initializer=np.arange(5, dtype=np.int64), use_resource=True)
    clear = tf.group(v.assign(tf.zeros_like(v)), w.assign(tf.zeros_like(w)))
    saver = v1.train.Saver([v, w], sharded=True, write_version=v1.train.SaverDef.V2)
    prefix = f"s3://{BUCKET}/run 1/model.ckpt"
    with v1.Session(target) as sess:
        sess.run([v.initializer, w.initializer])
        faults.every = 4
        # The names of the nodes are stock's; the client itself does not touch the bucket.
        sess.run(saver.saver_def.save_tensor_name, {saver.saver_def.filename_tensor_name: prefix})
        sess.run(clear)
        sess.run(saver.saver_def.restore_op_name, {saver.saver_def.filename_tensor_name: prefix})
        print("restored", np.array_equal(sess.run(v), large), sess.run(w).tolist())
        print("requests failed", faults.failed > 0)
        faults.every = 0
        print("files", names(client, "run 1/"))
        for missing in [f"s3://{BUCKET}/none", "s3://no-such-bucket/none", "s3:///none"]:
            try:
                sess.run(saver.saver_def.restore_op_name, {saver.saver_def.filename_tensor_name: missing})
                print(missing, "restored")
            except tf.errors.OpError as error:
                print(missing, type(error).__name__)
        try:
            sess.run(saver.saver_def.save_tensor_name, {saver.saver_def.filename_tensor_name: "http://localhost/model"})
        except tf.errors.OpError as error:
            print("saved behind http", type(error).__name__)
    with tempfile.TemporaryDirectory() as directory:
        for name in names(client, "run 1/"):
            client.download_file(BUCKET, name, str(pathlib.Path(directory) / pathlib.Path(name).name))
        reader = tf.train.load_checkpoint(str(pathlib.Path(directory) / "model.ckpt"))
        read = reader.get_tensor("v"), reader.get_tensor("w")
        print("stock reads", np.array_equal(read[0], large), read[1].tolist())


if __name__ == "__main__":
    main()
