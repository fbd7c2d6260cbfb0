"""A stock server in a process of its own: prints its target when it is ready and lives until its input closes.

    python stock_server.py [CLUSTER JOB INDEX]

Alone, or as a task of a cluster, which is given as JSON.
"""

import json
import os
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

import environment

import tensorflow as tf

if len(sys.argv) > 1:
    cluster, job, index = sys.argv[1:]
    server = tf.distribute.Server(json.loads(cluster), job_name=job, task_index=int(index))
else:
    server = tf.distribute.Server.create_local_server()
print(server.target, flush=True)
sys.stdin.read()
# The server cannot be shut down while sessions are open; the process can.
os._exit(0)
