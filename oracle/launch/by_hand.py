"""Tasks that are started by hand, one after the other: our parameter server, stock's programs beside it.

    python by_hand.py BINARY

Prints one line for everything that came out as it should; anything else is an error.
"""

import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))

import tasks
import trainer
from trainer import tf, v1

# How long anything may take before it is taken to hang.
SECONDS = 300
STEPS = 50

# What no task may say when everything goes well.
COMPLAINTS = re.compile(r"Traceback|Error|ERROR|UNAVAILABLE|CANCELLED|ABORTED| WARN ")


class Started:
    """A process with what it writes; `wait` gives its exit code."""

    def __init__(self, name, body=None, argv=None, env=None):
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        if argv is not None:
            # Whatever fails here, no server stays behind.
            quiet = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
            self.pid = subprocess.Popen(argv, env=env, preexec_fn=tasks.die_with_parent, **quiet).pid
            return
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                tasks.die_with_parent()
                os.dup2(self.log.fileno(), 1)
                os.dup2(self.log.fileno(), 2)
                body()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def wait(self):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.kill(self.pid, signal.SIGKILL)
        raise AssertionError(f"{self.name} did not end:\n{self.said()}")

    def await_line(self, pattern):
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            found = re.search(pattern, self.said())
            if found:
                return found[0]
            time.sleep(0.02)
        raise AssertionError(f"{self.name} did not say {pattern}:\n{self.said()}")


def any_order(binary):
    """Every order of a parameter server and two workers trains and ends without a word of complaint."""
    orders = list(itertools.permutations(["ps 0", "worker 0", "worker 1"]))
    ports = tasks.free_ports(3 * len(orders))
    flags, runs = {}, {order: {} for order in orders}
    for number, order in enumerate(orders):
        ps, *workers = (f"127.0.0.1:{port}" for port in ports[3 * number : 3 * number + 3])
        flags[order] = [f"--ps_hosts={ps}", f"--worker_hosts={','.join(workers)}"]
    for turn in range(3):
        for order in orders:
            job, index = order[turn].split()
            own = [*flags[order], f"--job_name={job}", f"--task_index={index}"]
            if job == "ps":
                started = Started(order[turn], argv=[binary, "serve", *own, "--exit-with-chief=1", "--log", "warn"])
            else:
                started = Started(
                    order[turn], body=lambda own=own: trainer.main([*own, f"--steps={STEPS}", "--together=2"])
                )
            runs[order][order[turn]] = started
        # Those that wait for others wait for a while.
        time.sleep(0.5)
    for order, run in runs.items():
        for name, started in run.items():
            code, said = started.wait(), started.said()
            assert code == 0 and not COMPLAINTS.search(said), f"{order}: {name} ended with {code}:\n{said}"
        print(", ".join(order), "trained and ended", flush=True)


def crash(binary):
    """A chief that is killed, before or after it trains, is waited for; the one that ends its training ends the others, used or not."""
    addresses = [f"127.0.0.1:{port}" for port in tasks.free_ports(3)]
    cluster = {job: [address] for job, address in zip(["chief", "ps", "worker"], addresses)}

    def as_task(job):
        return {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})}

    def chief(steps):
        os.environ.update(as_task("chief"))
        trainer.main([f"--steps={steps}"])

    serve = [binary, "serve", "--exit-with-chief=1", "--log", "info"]
    ps, worker = (Started(job, argv=serve, env=as_task(job)) for job in ["ps", "worker"])

    def hasty():
        server = tf.distribute.Server(cluster, "chief", 0)  # noqa: F841
        print("the chief listens", flush=True)
        signal.pause()

    early = Started("chief", body=hasty)
    early.await_line("the chief listens")
    # Both look at it several times a second.
    time.sleep(2)
    os.kill(early.pid, signal.SIGKILL)
    early.wait()
    for started in [ps, worker]:
        started.await_line("it went before it used this task")
    first = Started("chief", body=lambda: chief(10**9))
    first.await_line("chief 0 trains")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    ps.await_line("without closing its session")
    second = Started("chief", body=lambda: chief(STEPS))
    for started in [second, ps, worker]:
        code = started.wait()
        assert code == 0, f"{started.name} ended with {code}:\n{started.said()}"
    assert "The chief is done" in ps.said(), ps.said()
    print("a chief that crashed was waited for, and the end of the next one was the end of all", flush=True)


def late(binary):
    """A worker whose program begins after the chief has ended finds the parameter server; a chief that never comes is not waited for."""
    ps, *workers = (f"127.0.0.1:{port}" for port in tasks.free_ports(3))
    flags = [f"--ps_hosts={ps}", f"--worker_hosts={','.join(workers)}"]
    serving = Started("ps", argv=[binary, "serve", *flags, "--job_name=ps", "--exit-with-chief=1", "--log", "info"])
    hosts = {"ps": [ps], "worker": workers}

    def slow():
        server = tf.distribute.Server(hosts, "worker", 1)
        print("the worker listens", flush=True)
        # As a program that reads its data first.
        signal.sigwait([signal.SIGUSR1])
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            weight = v1.get_variable("weight", initializer=0.0)
            config = v1.ConfigProto(device_filters=["/job:ps", "/job:worker/task:1"])
            with v1.Session(server.target, config=config) as session:
                print("trained weight found:", session.run(v1.is_variable_initialized(weight)), flush=True)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    worker = Started("worker 1", body=slow)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    worker.await_line("the worker listens")
    chief = Started("worker 0", body=lambda: trainer.main([*flags, "--job_name=worker", f"--steps={STEPS}"]))
    assert chief.wait() == 0, chief.said()
    serving.await_line("task:1, which is there and has not begun, may yet train")
    os.kill(worker.pid, signal.SIGUSR1)
    assert worker.wait() == 0 and "found: True" in worker.said(), worker.said()
    assert serving.wait() == 0, serving.said()
    print("a worker that begins after the chief's end finds the parameter server", flush=True)
    alone = Started("ps", argv=[binary, "serve", *flags, "--job_name=ps", "--exit-with-chief", "--chief-timeout=1"])
    code, said = alone.wait(), alone.said()
    assert code == 1 and "task:0 has not come within 1 s" in said, f"{code}: {said}"
    print("a chief that never comes is not waited for", flush=True)


def drain(binary):
    """A task that is asked to terminate finishes its step, refuses the next one, and says that it was needed."""
    ps, worker = (f"127.0.0.1:{port}" for port in tasks.free_ports(2))
    serve = [binary, "serve", f"--ps_hosts={ps}", f"--worker_hosts={worker}", "--log", "warn"]
    servers = {job: Started(job, argv=[*serve, f"--job_name={job}", "--drain", "60"]) for job in ["ps", "worker"]}
    for server in servers.values():
        server.await_line("serves .* at grpc://")

    def client():
        with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
            begun = v1.FIFOQueue(1, tf.int32, shared_name="begun")
            gate = v1.FIFOQueue(1, tf.int32, shared_name="gate")
            begin, passed, is_begun = begun.enqueue(1), gate.enqueue(42), begun.dequeue()
            with tf.control_dependencies([begin]):
                waits = gate.dequeue()
            with tf.device("/job:worker/task:0"):
                at_once = tf.constant(1) + 1
            results = []
            at_worker, at_ps = v1.Session(f"grpc://{worker}"), v1.Session(f"grpc://{ps}")
            at_worker.run(at_once)
            running = threading.Thread(target=lambda: results.append(at_worker.run(waits)))
            running.start()
            at_ps.run(is_begun)
            os.kill(servers["worker"].pid, signal.SIGTERM)
            deadline = time.monotonic() + SECONDS
            try:
                while time.monotonic() < deadline:
                    at_worker.run(at_once)
                print("nothing was refused")
            except tf.errors.UnavailableError:
                print("a new step is refused")
            at_ps.run(passed)
            running.join()
            print("the step under way gave", *results, flush=True)
            # Its session is open until it ends.
            signal.pause()

    asking = Started("client", body=client)
    asking.await_line("under way gave")
    said = asking.said()
    assert said.splitlines() == ["a new step is refused", "the step under way gave 42"], said
    code = servers["worker"].wait()
    assert code == 128 + signal.SIGTERM, f"{code}: {servers['worker'].said()}"
    os.kill(asking.pid, signal.SIGKILL)
    asking.wait()
    os.kill(servers["ps"].pid, signal.SIGINT)
    assert servers["ps"].wait() == 0
    print("a step outlives the request to end, and the exit code says that the task was needed", flush=True)


def main():
    binary = sys.argv[1]
    any_order(binary)
    crash(binary)
    late(binary)
    drain(binary)


if __name__ == "__main__":
    main()
