"""Unchanged programs of TensorFlow, switched in every way, and their numbers beside stock's."""

import ast
import json
import math
import re
import socket

import pytest
from conftest import HERE, ROOT, run

PROGRAMS = HERE / "programs"


def classes(output):
    """The words before the public names."""
    return {line.split()[0] for line in output.splitlines() if "Server" in line}


def rest(output):
    """The lines about the server that the program has used."""
    return [line for line in output.splitlines() if "Server" not in line and not line.startswith("direct")]


@pytest.fixture(scope="module")
def stock_answers():
    """The same lines about a server of stock: the switch is off, although the program asks for it."""
    code, output, errors = run(PROGRAMS / "aliases.py", "late", FERROFLOW="0")
    assert code == 0, errors
    assert classes(output) == {"stock"}, output
    answers = rest(output)
    assert "sum 5" in answers and "isinstance True True" in answers and "direct False" in output
    return answers


@pytest.mark.parametrize(
    "words, variables",
    [
        (["-m", "ferroflow", PROGRAMS / "aliases.py"], {}),
        ([PROGRAMS / "aliases.py"], {"FERROFLOW": "1"}),
        ([PROGRAMS / "aliases.py", "first"], {}),
        ([PROGRAMS / "aliases.py", "late"], {"FERROFLOW_DIRECT": "0"}),
    ],
    ids=["module", "variable", "import first", "import after TensorFlow"],
)
def test_every_public_name_is_replaced(words, variables, stock_answers):
    code, output, errors = run(*words, **variables)
    assert code == 0, errors
    assert classes(output) == {"Ferroflow"}, output
    assert rest(output) == stock_answers
    assert f"direct {'FERROFLOW_DIRECT' not in variables}" in output


def test_a_program_that_asks_for_a_gpu_gets_stocks_server_and_the_reason():
    code, output, errors = run("-m", "ferroflow", PROGRAMS / "fallback.py")
    assert code == 0, errors
    assert "sum 5" in output
    told = [line for line in errors.splitlines() if line.startswith("ferroflow: ")]
    assert told == [
        "ferroflow: this server is stock TensorFlow's: device_count asks for 1 devices of type GPU; Ferroflow's servers "
        "have CPUs only"
    ]


def test_with_1_such_a_program_is_refused_with_stocks_exception():
    code, _, errors = run(PROGRAMS / "fallback.py", FERROFLOW="1")
    assert code == 1
    last = errors.strip().splitlines()[-1]
    assert last.startswith("tensorflow.python.framework.errors_impl.UnimplementedError: device_count asks for"), errors
    assert "_ferroflow" not in last and "panicked" not in errors


def free_ports(count):
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for held in sockets:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


NAMES = {"0": "stock", "1": "Ferroflow"}


def losses(start, ps, worker, directory):
    """The losses of the three trainings and the lines of the guide's trainer, all on one parameter server.

    `ps` and `worker` are the values of FERROFLOW for each task.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    words = [PROGRAMS / "train.py"]
    serving = start(*words, "ps", 0, *addresses, FERROFLOW=ps)
    working = start(*words, "worker", 0, *addresses, FERROFLOW=worker)
    serving.line_with(f"class {NAMES[ps]}")
    working.line_with(f"class {NAMES[worker]}")
    lines = [working.line_with(kind).split(" ", 1) for kind in ("async [", "sync [", "queue [")]
    code, rest = working.wait()
    assert code == 0, rest
    cluster = {"ps": addresses[:1], "worker": addresses[1:]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
    guide = start(ROOT / "examples/trainer.py", 500, at=directory, FERROFLOW=worker, TF_CONFIG=config)
    code, output = guide.wait()
    assert code == 0 and "saved model/digits-50" in output, output
    serving.kill()
    return {**{kind: json.loads(numbers) for kind, numbers in lines}, "guide": numbers_of(output)}


def numbers_of(output):
    """The losses and shares of right answers that an example prints, without the speeds."""
    return [float(number) for number in re.findall(r"(?:loss |, )?([0-9]+\.[0-9]+)(?= %|$|,)", output, re.MULTILINE)]


def test_numbers_are_stocks_whoever_serves(start, tmp_path):
    stock = losses(start, "0", "0", tmp_path)
    for kind, numbers in stock.items():
        assert numbers[1] < numbers[0] and len(numbers) == (3 if kind == "guide" else 12), (kind, numbers)
    for ps, worker in (("1", "1"), ("0", "1"), ("1", "0")):
        ours = losses(start, ps, worker, tmp_path)
        # Two losses of three digits, and a share of right answers: it counts its steps while others do, too.
        near = [abs(one - other) for one, other in zip(ours.pop("guide"), stock["guide"])]
        assert max(near[:2]) < 0.002 and near[2] < 2, (ps, worker, near, stock["guide"])
        for kind, numbers in ours.items():
            close = [math.isclose(one, other, rel_tol=1e-5) for one, other in zip(numbers, stock[kind])]
            assert all(close) and len(numbers) == len(stock[kind]), (kind, ps, worker, numbers, stock[kind])


def coordinated(start, ps, worker, directory):
    """The numbers of the example with a coordinator, all of whose tasks run the program."""
    cluster = dict(zip(("chief", "ps", "worker"), ([f"127.0.0.1:{port}"] for port in free_ports(3))))

    def task(name, switch):
        config = json.dumps({"cluster": cluster, "task": {"type": name, "index": 0}})
        words = [ROOT / "examples/coordinator.py", 1]
        return start(*words, at=directory, FERROFLOW=switch, TF_CONFIG=config, FERROFLOW_LOG="info")

    tasks = [task("ps", ps), task("worker", worker)]
    code, output = task("chief", worker).wait()
    assert code == 0, output
    for served, switch in zip(tasks, (ps, worker)):
        served.kill()
        assert ("serves at" in served.errors_so_far()) == (switch == "1"), served.errors_so_far()
    return numbers_of(output)


def test_a_coordinator_has_stocks_numbers_whoever_serves(start, tmp_path):
    answers = {}
    for ps, worker in (("0", "0"), ("1", "1"), ("1", "0")):
        (tmp_path / (ps + worker)).mkdir()
        answers[ps + worker] = coordinated(start, ps, worker, tmp_path / (ps + worker))
    stock = answers.pop("00")
    assert len(stock) == 3 and stock[0] < 1 and stock[2] > 85, stock
    for who, numbers in answers.items():
        assert all(abs(one - other) < 0.5 for one, other in zip(numbers, stock)), (who, numbers, stock)


def showing(cell):
    """The code of a cell, which shows the value of its last expression, as a notebook does."""
    code = ast.parse(cell)
    last = code.body[-1]
    if isinstance(last, ast.Expr):
        code.body[-1] = ast.parse(f"print({ast.unparse(last)})").body[0]
    return ast.unparse(code)


def test_the_cells_of_the_tutorial_run(tmp_path, start):
    notebook = json.loads((ROOT / "examples/tutorial.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = tmp_path / "tutorial.py"
    program.write_text("\n".join(map(showing, cells)))
    code, output = start(program, at=tmp_path).wait()
    assert code == 0, output
    answer = re.search(r"^\[\[(15\.|14\.9)", output, re.MULTILINE)
    assert "'weights': [[1." in output and "(1000, 0.0)" in output and answer, output
