"""A stock client makes steps at a server, and Prometheus' own parser reads what the server counted.

    python scrape.py ADDRESS

Prints what browsers, probes and scrapers are answered.
"""

import os
import sys
import urllib.error
import urllib.request

import environment

import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families

v1 = tf.compat.v1


def get(address, path, method="GET"):
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers.get_content_type(), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get_content_type(), error.read().decode()


def samples(address):
    families = text_string_to_metric_families(get(address, "/metrics")[2])
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def main():
    (address,) = sys.argv[1:]
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [])
        checked = tf.debugging.check_numerics(x * 2, "not a number")
        with v1.Session(f"grpc://{address}") as sess:
            for i in range(5):
                sess.run(checked, {x: i})
            try:
                sess.run(checked, {x: float("nan")})
            except tf.errors.InvalidArgumentError:
                print("refused")
            seen = samples(address)
            count = lambda name, **labels: seen[(name, tuple(sorted(labels.items())))]
            print("steps", count("ferroflow_steps_seconds_count"), count("ferroflow_steps_seconds_bucket", le="+Inf"))
            print("failures", count("ferroflow_steps_failures_total"))
            print("sessions", count("ferroflow_sessions"))
            print("times", 0 < count("ferroflow_steps_seconds_sum") < count("process_start_time_seconds"))
            print("memory", count("process_resident_memory_bytes") > 1e6, count("process_open_fds") > 3)
            print(next(labels for name, labels in seen if name == "ferroflow_info")[:2])
    print("sessions", samples(address)[("ferroflow_sessions", ())])
    for path in ("/healthz", "/readyz", "/nowhere"):
        print(path, get(address, path))
    print("/ lists", [path for path in ("/metrics", "/healthz", "/readyz") if path in get(address, "/")[2]])
    print("HEAD", get(address, "/healthz", "HEAD"))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
