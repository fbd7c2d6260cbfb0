"""Servers, clusters and roles without TensorFlow, and every way to misuse them."""

import os
import socket
import sys

import ferroflow
from ferroflow import errors

import pytest
from conftest import run


def free_address():
    """An address of this machine that was free a moment ago."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


def is_open(address):
    """Whether something listens there."""
    host, port = address.replace("grpc://", "").rsplit(":", 1)
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_server_serves_where_its_entry_says():
    address = free_address()
    server = ferroflow.Server({"worker": [address]})
    assert server.target == "grpc://" + address
    assert (server.server_def.job_name, server.server_def.task_index) == ("worker", 0)
    assert server.server_def.protocol == "grpc"
    assert is_open(address)
    server.start()
    assert server.stop()
    assert not is_open(address)
    server.join()
    with pytest.raises(errors.FailedPreconditionError, match="has stopped; make another one"):
        server.start()


def test_a_server_that_is_not_started_has_its_port_and_serves_later():
    server = ferroflow.Server.create_local_server(start=False)
    assert not server.target.endswith(":0")
    with pytest.raises(errors.FailedPreconditionError, match="does not serve"):
        ferroflow.Session(server)
    server.start()
    ferroflow.Session(server).close()
    assert server.stop()


def test_mistakes_are_told_in_sentences():
    address = free_address()
    cluster = {"ps": [address], "worker": ["b:1", "c:1"]}
    with pytest.raises(ValueError, match="job_name is needed: the cluster has the jobs ps, worker"):
        ferroflow.Server(cluster)
    with pytest.raises(ValueError, match="task_index is needed: the job worker has 2 tasks"):
        ferroflow.Server(cluster, "worker")
    with pytest.raises(errors.InvalidArgumentError, match="/job:worker/replica:0/task:7 is not a task of the cluster"):
        ferroflow.Server(cluster, "worker", 7)
    with pytest.raises(errors.NotFoundError, match=r"'grpc\+verbs' is not supported"):
        ferroflow.Server(cluster, "ps", protocol="grpc+verbs")
    with pytest.raises(TypeError, match="expected a dictionary, a ClusterSpec or a ClusterDef"):
        ferroflow.Server(7)
    with pytest.raises(TypeError, match="expected a list of addresses"):
        ferroflow.Server({"worker": "a:1"})
    with pytest.raises(TypeError, match="config is a str"):
        ferroflow.Server({"worker": [address]}, config="intra_op: 1")
    with pytest.raises(errors.InvalidArgumentError, match="ConfigProto cannot be read"):
        ferroflow.Server({"worker": [address]}, config=b"\xff\xff")
    # device_count {key: "GPU" value: 1}
    with pytest.raises(errors.UnimplementedError, match="1 devices of type GPU") as caught:
        ferroflow.Server({"worker": [address]}, config=b"\x0a\x07\x0a\x03GPU\x10\x01")
    assert caught.value.code == 12 and isinstance(caught.value, ferroflow.Error)


def test_a_port_in_use_names_the_process_that_has_it():
    server = ferroflow.Server({"worker": [free_address()]})
    address = server.target.replace("grpc://", "")
    with pytest.raises(errors.UnknownError, match=f"in use.*by.*{os.getpid()}") as caught:
        ferroflow.Server({"worker": [address]})
    assert caught.value.code == 2
    server.stop()


def test_a_forked_process_is_told_that_the_server_is_not_its_own():
    program = """
import os, ferroflow
server = ferroflow.Server.create_local_server()
child = os.fork()
if child == 0:
    try:
        server.join()
    except ferroflow.errors.FailedPreconditionError as error:
        print(error)
    own = ferroflow.Server.create_local_server()
    print(own.stop())
    raise SystemExit(3)
print(os.WEXITSTATUS(os.waitpid(child, 0)[1]), server.stop())
"""
    code, output, told = run("-c", program)
    assert code == 0, told
    lines = output.splitlines()
    assert "this process was forked from it: threads do not survive a fork" in lines[0]
    assert lines[1:] == ["True", "3 True"]


def test_ctrl_c_ends_join(start):
    program = start("-c", "import ferroflow; s = ferroflow.Server.create_local_server(); print(s.target); s.join()")
    program.line_with("grpc://")
    program.interrupt()
    code, rest = program.wait()
    assert code == -2, rest
    assert rest.strip().endswith("KeyboardInterrupt") and "panicked" not in rest


def test_a_program_ends_while_a_step_runs(stock_files):
    program = """
import sys, threading, ferroflow
server = ferroflow.Server.create_local_server()
session = ferroflow.Session(server, sys.argv[1])
def wait():
    session.run("never:0")
threading.Thread(target=wait, daemon=True).start()
session.run("y:0", {"x:0": [[1, 2]], "w:0": [[1], [1]]})
print("done")
"""
    code, output, told = run("-c", program, stock_files / "graph.pb")
    assert (code, output) == (0, "done\n"), told
    assert "panicked" not in told and "Traceback" not in told


def test_a_cluster_of_this_process(stock_files):
    with ferroflow.local_cluster(ps=2, workers=3) as cluster:
        assert cluster.cluster.jobs == ["ps", "worker"]
        assert [cluster.cluster.num_tasks(job) for job in cluster.cluster.jobs] == [2, 3]
        assert len(cluster.targets) == 3 and all(map(is_open, cluster.targets))
        assert "<td>worker:2</td>" in cluster._repr_html_() and "serving" in repr(cluster)
        assert cluster.servers["worker"][0].activity == (0, 0, 0, 0)
        with ferroflow.Session(cluster.target, stock_files / "graph.pb") as session:
            session.run("init_1")
            assert session.run("y:0", {"x:0": [[3.0, 4.0]]}).tolist() == [[11.0]]
            work = cluster.servers["worker"][0].activity
            assert (work.sessions, work.running) == (1, 0) and work.steps >= 2 and work.tensor_bytes > 0
        targets = cluster.targets
    assert not any(map(is_open, targets)) and "stopped" in repr(cluster)
    with pytest.raises(errors.InvalidArgumentError, match="at least one task"):
        ferroflow.local_cluster(ps=0, workers=0)


def test_roles_are_those_of_the_command():
    text = '{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
    role = ferroflow.resolve({"TF_CONFIG": text})
    assert (role.job_name, role.task_index, role.is_chief, role.address) == ("worker", 0, True, "b:1")
    assert role.cluster == ferroflow.ClusterSpec({"ps": ["a:1"], "worker": ["b:1"]})
    assert ferroflow.resolve({}).source is None
    with pytest.raises(errors.InvalidArgumentError) as caught:
        ferroflow.resolve({"TF_CONFIG": "{"})
    script = os.path.join(os.path.dirname(sys.executable), "ferroflow")
    code, _, told = run(script, "resolve", TF_CONFIG="{")
    assert (code, told.strip()) == (1, f"ferroflow: {caught.value.message}")


def test_cluster_specs_have_stocks_interface():
    spec = ferroflow.ClusterSpec({"worker": {3: "d:1", 1: "c:1"}, "ps": ("a:1",)})
    assert spec.task_indices("worker") == [1, 3] and spec.task_address("ps", 0) == "a:1"
    assert spec.as_dict() == {"worker": {1: "c:1", 3: "d:1"}, "ps": ["a:1"]}
    assert ferroflow.ClusterSpec(spec) == spec and bool(spec) and not ferroflow.ClusterSpec({})
    with pytest.raises(ValueError, match="the cluster has no job chief; its jobs are worker, ps"):
        spec.num_tasks("chief")


def test_the_command_runs_clusters(tmp_path):
    script = os.path.join(os.path.dirname(sys.executable), "ferroflow")
    told = "import os; print(os.environ['FERROFLOW'], os.environ['TF_CONFIG'][:11])"
    for flags, value in (([], "auto"), (["--stock-servers"], "0")):
        words = ["run", "--ps", "1", "--workers", "2", *flags, "--", sys.executable, "-c", told]
        code, output, failure = run(script, *words)
        assert code == 0, failure
        assert sorted(output.splitlines()) == [f'worker/{task} | {value} {{"cluster":' for task in (0, 1)]
    code, output, _ = run(script, "--version")
    assert (code, output.split()) == (0, ["ferroflow", ferroflow.__version__])


def test_programs_are_run_as_python_runs_them(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, os, neighbor\n"
        "print(__name__, sys.argv[1:], os.path.basename(sys.path[0]), os.environ['FERROFLOW'], neighbor.x)\n"
        "sys.exit(5)\n"
    )
    (tmp_path / "neighbor.py").write_text("x = 1\n")
    code, output, told = run("-m", "ferroflow", program, "--a", "b")
    assert (code, output.strip()) == (5, f"__main__ ['--a', 'b'] {tmp_path.name} auto 1"), told
    program.write_text("def f():\n    1 / 0\nf()\n")
    code, _, told = run("-m", "ferroflow", program)
    assert code == 1 and 'program.py", line 2, in f' in told and told.strip().endswith("division by zero")
    code, _, told = run("-m", "ferroflow", tmp_path / "absent.py")
    assert code == 2 and "absent.py: No such file or directory" in told
    code, _, told = run("-m", "ferroflow", program, FERROFLOW="maybe")
    assert code == 2 and "FERROFLOW=maybe is not a setting; write 1, auto or 0" in told


def test_the_switch_costs_nothing_where_it_is_off():
    loaded = "import sys; print(any(name.startswith('ferroflow') for name in sys.modules))"
    assert run("-c", loaded)[:2] == (0, "False\n")
    assert run("-c", loaded, FERROFLOW="0")[:2] == (0, "False\n")
    # Switched, but before TensorFlow is imported nothing of Rust is loaded.
    loaded = "import sys; print('ferroflow.switch' in sys.modules, 'ferroflow._ferroflow' in sys.modules)"
    assert run("-c", loaded, FERROFLOW="auto")[:2] == (0, "True False\n")
