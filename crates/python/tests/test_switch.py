"""Unchanged programs of TensorFlow, switched in every way, and their numbers beside stock's."""

import json
import math
import socket

import pytest
from conftest import HERE, run

PROGRAMS = HERE / "programs"


def classes(output):
    """The words before the public names."""
    return {line.split()[0] for line in output.splitlines() if "Server" in line}


def rest(output):
    """The lines about the server that the program has used."""
    return [line for line in output.splitlines() if "Server" not in line]


@pytest.fixture(scope="module")
def stock_answers():
    """The same lines about a server of stock: the switch is off, although the program asks for it."""
    code, output, errors = run(PROGRAMS / "aliases.py", "late", FERROFLOW="0")
    assert code == 0, errors
    assert classes(output) == {"stock"}, output
    answers = rest(output)
    assert "sum 5" in answers and "isinstance True True" in answers
    return answers


@pytest.mark.parametrize(
    "words, variables",
    [
        (["-m", "ferroflow", PROGRAMS / "aliases.py"], {}),
        ([PROGRAMS / "aliases.py"], {"FERROFLOW": "1"}),
        ([PROGRAMS / "aliases.py", "first"], {}),
        ([PROGRAMS / "aliases.py", "late"], {}),
    ],
    ids=["module", "variable", "import first", "import after TensorFlow"],
)
def test_every_public_name_is_replaced(words, variables, stock_answers):
    code, output, errors = run(*words, **variables)
    assert code == 0, errors
    assert classes(output) == {"Ferroflow"}, output
    assert rest(output) == stock_answers


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


def losses(start, ps, worker):
    """The losses of the three trainings; the arguments are the values of FERROFLOW for each task."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    words = [PROGRAMS / "train.py"]
    serving = start(*words, "ps", 0, *addresses, FERROFLOW=ps)
    working = start(*words, "worker", 0, *addresses, FERROFLOW=worker)
    names = {"0": "stock", "1": "Ferroflow"}
    serving.line_with(f"class {names[ps]}")
    working.line_with(f"class {names[worker]}")
    lines = [working.line_with(kind).split(" ", 1) for kind in ("async [", "sync [", "queue [")]
    code, rest = working.wait()
    assert code == 0, rest
    serving.kill()
    return {kind: json.loads(numbers) for kind, numbers in lines}


def test_numbers_are_stocks_whoever_serves(start):
    stock = losses(start, "0", "0")
    for kind, numbers in stock.items():
        assert numbers[-1] < numbers[0] and len(numbers) == 12, (kind, numbers)
    for ps, worker in (("1", "1"), ("0", "1"), ("1", "0")):
        ours = losses(start, ps, worker)
        for kind, numbers in stock.items():
            close = [math.isclose(one, other, rel_tol=1e-5) for one, other in zip(ours[kind], numbers)]
            assert all(close) and len(ours[kind]) == len(numbers), (kind, ps, worker, ours[kind], numbers)
