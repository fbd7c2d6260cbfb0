"""A task that a session waits for in vain: the master says for whom, since when and why, and keeps to the session's deadline."""

import http.server
import re
import socket

import tensorflow as tf

import tasks
from report import v1

VERDICTS = True
LAYOUTS = ("ours",)

# Longer than a wait may be silent.
MILLISECONDS = 15_000


def orchestrate(_, binary):
    # Nobody answers where connections are not accepted.
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    silent.listen()
    talker = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    tasks.Client(talker.serve_forever)
    with tasks.Cluster({"stranger": [tasks.STOCK, tasks.OURS]}, binary) as strangers:
        refused = tasks.free_ports(1)[0]
        another = strangers.spec["stranger"]
        places = {
            "name not found": ("no-such-host.invalid:2222", "cannot be resolved"),
            "refused": (f"127.0.0.1:{refused}", "refused"),
            "no answer": (f"127.0.0.1:{silent.getsockname()[1]}", "no answer from"),
            # It may close the connection before its answer is read.
            "another protocol": (f"127.0.0.1:{talker.server_port}", "does not speak gRPC|the connection to .* broke"),
            "another role, a task of stock's": (another[0], "/job:stranger/replica:0/task:0 answers at"),
            "another role, a task of ours": (another[1], "/job:stranger/replica:0/task:1 answers at"),
        }
        masters = []
        for address, _ in places.values():
            master = tasks.Cluster({"worker": [tasks.OURS]}, binary)
            master.tasks[0].knows = {"ps": {2: address}, "worker": master.spec["worker"]}
            master.start()
            masters.append(master)
        clients = [tasks.Client(ask, master.target()) for master in masters]
        for (label, (_, why)), master, client in zip(places.items(), masters, clients):
            lines = client.finish(60)
            said = re.sub(r"\x1b\[[0-9;]*m", "", master.tasks[0].log.read_text(errors="replace"))
            word = re.search(r"Waiting for /job:ps/replica:0/task:2 for \d+ s: (.*)", said)
            told = word is not None and re.search(why, word[1]) is not None
            print(f"{label}, {lines}, {word and word[0]}: {lines == ['DeadlineExceededError, which names the task'] and told}", flush=True)
            master.stop()
    silent.close()


def ask(target):
    with tf.Graph().as_default() as graph:
        tf.no_op(name="nothing")
        try:
            with v1.Session(target, graph=graph, config=v1.ConfigProto(operation_timeout_in_ms=MILLISECONDS)) as sess:
                sess.run("nothing")
            print("no failure", flush=True)
        except tf.errors.OpError as error:
            named = "which names the task" if "/job:ps/replica:0/task:2" in error.message else error.message
            print(f"{type(error).__name__}, {named}", flush=True)
