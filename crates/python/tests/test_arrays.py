"""Sessions, checkpoints and event files with numpy arrays, beside files that stock wrote and reads."""

import threading

import ferroflow
from ferroflow import errors

import numpy as np
import pytest
from conftest import HERE, run


@pytest.fixture
def session(stock_files):
    """A session of stock's graph in this process."""
    with ferroflow.Session(graph=stock_files / "graph.pb") as opened:
        opened.run("init_1")
        yield opened


def test_arrays_go_in_and_come_out(session):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert session.run("y:0", {"x:0": x}).tolist() == (x @ [[1.0], [2.0]]).tolist()
    fetches = {"y": "y:0", "rest": ["w:0", ("init_1", "loud:0")]}
    nested = session.run(fetches, {"x:0": x[::-1], "words:0": ["a", b"\xff"]})
    assert nested["y"].tolist() == (x[::-1] @ [[1.0], [2.0]]).tolist()
    assert nested["rest"][1] == (None, nested["rest"][1][1])
    assert nested["rest"][1][1].tolist() == [b"a!", b"\xff!"]
    assert session.run("grow") is None
    assert session.run("w:0").tolist() == [[2.0], [3.0]]
    assert session.run("y:0", {"x:0": np.empty((0, 2))}).shape == (0, 1)
    assert session.run("half:0", {"x:0": [[1.5, 2.0]]}).dtype.name == "bfloat16"
    assert "grow" in session.operations()


def test_fetched_memory_outlives_the_session(stock_files):
    with ferroflow.Session(graph=stock_files / "model-7.meta") as session:
        session.run("init_1")
        w = session.run("w:0")
        session.run("grow")
        assert session.run("w:0").tolist() == [[2.0], [3.0]]
    assert w.tolist() == [[1.0], [2.0]]


def test_steps_that_fail_say_why(session):
    with pytest.raises(errors.InvalidArgumentError, match="Cannot feed value of shape"):
        session.run("y:0", {"x:0": [1.0, 2.0]})
    with pytest.raises(errors.Error, match="absent"):
        session.run("absent:0")
    with pytest.raises(TypeError, match="expected the name of an output or an operation"):
        session.run(7)
    with pytest.raises(errors.DeadlineExceededError):
        session.run("never:0", timeout=0.2)
    with pytest.raises(errors.InvalidArgumentError, match="not a number of seconds"):
        session.run("never:0", timeout=-1)
    failed = []

    def wait():
        try:
            session.run("never:0")
        except errors.Error as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    session.close()
    waiting.join()
    # The last one if the session was closed before the step began.
    assert isinstance(failed[0], (errors.CancelledError, errors.AbortedError, errors.FailedPreconditionError)), failed
    with pytest.raises(errors.FailedPreconditionError, match="the session is closed; open another one"):
        session.run("init_1")


def test_ctrl_c_ends_a_step(start, stock_files):
    words = "import sys, ferroflow; s = ferroflow.Session(graph=sys.argv[1]); print('open'); s.run('never:0')"
    program = start("-c", words, stock_files / "graph.pb")
    program.line_with("open")
    program.interrupt()
    code, rest = program.wait()
    assert code == -2 and rest.strip().endswith("KeyboardInterrupt"), rest


def test_files_that_are_no_graphs_are_refused(tmp_path):
    for content in (b"\xff\xff\xff", b"text", b"node { name: 'a' op: 'Const'", b"graph_def: 7"):
        with pytest.raises(errors.DataLossError, match=r"expected .*GraphDef"):
            ferroflow.Session(graph=content)
    with pytest.raises(FileNotFoundError):
        ferroflow.Session(graph=tmp_path / "absent.pb")


def test_graphs_are_text_or_not(stock_files):
    for name in ("graph.pbtxt", "graph.meta.txt"):
        with ferroflow.Session(graph=stock_files / name) as session:
            session.run("init_1")
            assert session.run("y:0", {"x:0": [[3.0, 4.0]]}).tolist() == [[11.0]], name
    binary = ferroflow.read_graph(stock_files / "graph.pb")
    assert ferroflow.read_graph(stock_files / "graph.pbtxt") == binary


def test_checkpoints_of_stock_are_dictionaries(stock_files):
    checkpoint = ferroflow.Checkpoint(stock_files)
    assert list(checkpoint) == ["p", "w"] and len(checkpoint) == 2
    assert checkpoint["w"].tolist() == [[1.0], [2.0]] and checkpoint["w"].dtype == np.float32
    assert checkpoint["p"].tolist() == np.ones((6, 2)).tolist(), "a partitioned variable is whole"
    assert checkpoint.describe("p") == ("float", (6, 2))
    with pytest.raises(KeyError):
        checkpoint["absent"]
    with pytest.raises(errors.NotFoundError):
        ferroflow.Checkpoint(stock_files / "absent")


def test_stock_reads_files_that_are_written(tmp_path, stock_files):
    prefix = tmp_path / "written"
    tensors = {"a": np.arange(6, dtype=np.int64).reshape(2, 3), "b": [1.5, 2.5], "c": ["x", "yz"], "d": True}
    ferroflow.write_checkpoint(prefix, tensors)
    again = ferroflow.Checkpoint(prefix)
    assert again["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and again["b"].tolist() == [1.5, 2.5]
    assert again["c"].tolist() == [b"x", b"yz"] and bool(again["d"]) is True

    with ferroflow.EventWriter(tmp_path / "logs", suffix=".v2") as writer:
        writer.write(3, {"loss": 0.5, "rate": np.float32(0.25)}, wall_time=1000.5)
        writer.write(4, {"weights": np.ones([2, 1]), "note": "ä"}, wall_time=1001)
    assert writer.path.endswith(".v2")
    first, second = ferroflow.read_events(writer.path)
    assert (first.step, first.wall_time, first.values) == (3, 1000.5, {"loss": 0.5, "rate": 0.25})
    assert second.values["weights"].tolist() == [[1.0], [1.0]]
    with pytest.raises(errors.FailedPreconditionError, match="is closed; open another one"):
        writer.write(5, {"loss": 0.5})

    text = tmp_path / "graph.pbtxt"
    ferroflow.write_graph(stock_files / "graph.pb", text)
    ferroflow.write_graph(text, tmp_path / "graph.pb", as_text=False)
    assert (tmp_path / "graph.pb").read_bytes() == ferroflow.read_graph(stock_files / "graph.pb")

    code, output, told = run(HERE / "programs/read_files.py", prefix, writer.path, text)
    assert code == 0, told
    nodes = ferroflow.Session(graph=text).operations()
    assert output.splitlines() == [
        "a int64 [[0, 1, 2], [3, 4, 5]]",
        "b float64 [1.5, 2.5]",
        "c string [b'x', b'yz']",
        "d bool True",
        "3 1000.5 loss 0.5",
        "3 1000.5 rate 0.25",
        "4 1001.0 weights [[1.0], [1.0]]",
        "4 1001.0 note b'\\xc3\\xa4'",
        "y [[11.0]]",
        "loud [b'\\xc3\\xa4!', b'\\xff!']",
        f"operations {len(nodes)}",
    ]


def test_events_of_stock_are_read(stock_files):
    (file,) = (stock_files / "events").iterdir()
    loss, weights = ferroflow.read_events(file)
    assert (loss.step, float(loss.values["loss"])) == (3, 0.5) and loss.wall_time > 1e9
    assert weights.values["weights"].shape[1] == 3, "buckets have two borders and a count"
    (file,) = (stock_files / "events-1").iterdir()
    assert [(event.step, event.values) for event in ferroflow.read_events(file)] == [(4, {"loss": 0.25})]
