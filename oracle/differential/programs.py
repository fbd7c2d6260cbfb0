"""Random programs of functions with effects: assignments, random numbers, conditionals, loops and calls in each other.

All functions of a program name their nodes alike, because each numbers its nodes from the start: what belongs to one of
them must not be taken for what belongs to another. A program is a function of its seed.

    python oracle/differential/programs.py --server target/release/ferroflow [--seed N] [--seeds N]
"""

import argparse
import pathlib
import random
import sys

ORACLE = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ORACLE), str(ORACLE / "bench")]

import stock  # noqa: I001 (first: it says how TensorFlow is to run)
import numpy as np
import protos
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, named_tensor_pb2

v1 = tf.compat.v1

_MARK = "_lower_using_switch_merge"
_DEEPEST = 2


class Program:
    """A graph, and the steps to run: (fed value, what to fetch)."""

    def __init__(self, seed, devices=()):
        self._random = random.Random(seed)
        self._devices = devices
        self._functions = []
        # The share of conditionals and loops that stay what they are; clients mark all of them.
        self._unmarked = 0.0 if devices else self._random.choice([0.0, 0.0, 0.3, 1.0])
        graph = tf.Graph()
        with graph.as_default():
            v1.enable_control_flow_v2()
            v1.set_random_seed(seed % 1000 + 1)
            self._variables = [self._variable(i) for i in range(3)]
            x = v1.placeholder(tf.float32, [], name="x")
            for _ in range(self._random.randint(3, 4)):
                self._functions.append(self._function())
            calls = [function(x) for function in self._functions for _ in range(self._random.randint(1, 2))]
            state = [tf.identity(variable.read_value(), name=f"state{i}") for i, variable in enumerate(self._variables)]
            init = v1.global_variables_initializer().name
            v1.disable_control_flow_v2()
        self.graph = graph.as_graph_def()
        self._unmark()
        self.init = init
        self.state = [tensor.name for tensor in state]
        self.steps = [(self._number(), self._random.choice(calls).name) for _ in range(6)]

    def _number(self):
        return float(self._random.randint(-4, 4)) / 2

    def _variable(self, number):
        with v1.device(self._random.choice(self._devices) if self._devices else None):
            return v1.get_variable(f"v{number}", initializer=self._number(), use_resource=True)

    def _function(self):
        # What is drawn must not depend on how often the function is traced.
        plan = self._block(0)
        return tf.function(lambda x: self._run(plan, x))

    def _block(self, depth):
        """Statements, drawn once: tuples that `_run` knows."""
        kinds = ["assign", "add", "scale"]
        # Which stream a node draws from that is in several functions which all stay calls is not the same in ours.
        if not self._unmarked:
            kinds.append("draw")
        if depth < _DEEPEST:
            kinds += ["cond", "loop", "case"]
        if self._functions:
            kinds.append("call")
        return [self._statement(self._random.choice(kinds), depth) for _ in range(self._random.randint(1, 3))]

    def _statement(self, kind, depth):
        number, variable = self._number(), self._random.randrange(3)
        device = self._random.choice([None, *self._devices])
        blocks = [self._block(depth + 1) for _ in range({"cond": 2, "case": 3, "loop": 1}.get(kind, 0))]
        called = self._random.randrange(len(self._functions)) if self._functions else 0
        return kind, number, variable, device, blocks, called

    def _run(self, block, x):
        for kind, number, index, device, blocks, called in block:
            variable = self._variables[index]
            with v1.device(device):
                if kind == "assign":
                    variable.assign(x * number)
                elif kind == "add":
                    variable.assign_add(x + number)
                elif kind == "draw":
                    x = x + tf.random.uniform([], seed=index + 1)
                elif kind == "scale":
                    x = x * 0.5 + variable.read_value() * 0.25 + number
            if kind == "cond":
                x = tf.cond(x > number, lambda x=x: self._run(blocks[0], x), lambda x=x: self._run(blocks[1], x))
            elif kind == "case":
                choice = tf.cast(tf.abs(x * 2.0), tf.int32) % 4
                x = tf.switch_case(choice, [lambda x=x, b=b: self._run(b, x) for b in blocks])
            elif kind == "loop":
                times = index + 1
                step = lambda i, x: (i + 1, self._run(blocks[0], x))
                # Iterations side by side would draw in any order.
                _, x = tf.while_loop(lambda i, _: i < times, step, (0, x), parallel_iterations=1)
            elif kind == "call":
                x = self._functions[called](x)
            # Neither sums nor products run away.
            x = tf.clip_by_value(x, -100.0, 100.0)
        return x

    def _unmark(self):
        bodies = [function.node_def for function in self.graph.library.function]
        for node in (node for nodes in [self.graph.node, *bodies] for node in nodes):
            if _MARK in node.attr and self._random.random() < self._unmarked:
                del node.attr[_MARK]


# What a client hears if no node gives what it asked for.
_INTERNAL = "status 13:"


def answers(client, program, optimized):
    """The results of a server for each step, and the variables after it."""
    for _ in range(5):
        found = _answers(client, program, optimized)
        # Stock's optimizer breaks some loops, in one session of many, so that their results stay without a value.
        if not any(isinstance(answer, str) and answer.startswith(_INTERNAL) for answer in found):
            break
    return found


def _answers(client, program, optimized):
    config = config_pb2.ConfigProto(isolate_session_state=True)
    if not optimized:
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.optimizer_options.opt_level = -1
    found = []
    try:
        handle = client.call("CreateSession", graph_def=program.graph, config=config).session_handle
    except stock.StockError as error:
        return [f"session: status {error.code}: {_first_line(error.message)}"]

    def run(feeds, fetches, targets):
        options = config_pb2.RunOptions(timeout_in_ms=20000)
        response = client.call(
            "RunStep",
            session_handle=handle,
            feed=feeds,
            fetch=fetches,
            target=targets,
            options=options,
            store_errors_in_response_body=True,
        )
        if response.status_code != stock.OK:
            raise stock.StockError(response.status_code, response.status_error_message)
        by_name = {named.name: protos.array(named.tensor) for named in response.tensor}
        return [by_name[name] for name in fetches]

    run([], [], [program.init])
    for value, fetch in program.steps:
        feed = named_tensor_pb2.NamedTensorProto(name="x:0", tensor=protos.tensor(np.float32(value)))
        try:
            found.append(run([feed], [fetch], []) + run([], program.state, []))
        except stock.StockError as error:
            found.append(f"status {error.code}: {_first_line(error.message)}")
    client.call("CloseSession", session_handle=handle)
    return found


def _first_line(message):
    said = [line for line in message.splitlines() if line and not line.startswith("From /job:")]
    return said[0][:200] if said else ""


def differ(expected, found):
    """The first step that differs, or None; also None if stock's optimizer has broken the program."""
    if any(isinstance(answer, str) and answer.startswith(_INTERNAL) for answer in expected):
        return None
    for step, (theirs, ours) in enumerate(zip(expected, found)):
        if isinstance(theirs, str) or isinstance(ours, str):
            if not (isinstance(theirs, str) and isinstance(ours, str) and theirs.split(":")[0] == ours.split(":")[0]):
                return step
        elif not all(np.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(theirs, ours)):
            return step
    return None if len(expected) == len(found) else len(expected)


def main():
    import servers

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="our binary; `stock` compares stock with itself")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=20, help="how many programs")
    parser.add_argument("--show", action="store_true", help="print the graph of a program that differs")
    args = parser.parse_args()
    tf.compat.v1.disable_eager_execution()
    theirs = servers.stock()
    ours = servers.stock() if args.server == "stock" else servers.ferroflow(args.server)
    clients = [stock.Client(server.target) for server in (theirs, ours)]
    failed = []
    try:
        for seed in range(args.seed, args.seed + args.seeds):
            program = Program(seed)
            for optimized in (True, False):
                expected, found = (answers(client, program, optimized) for client in clients)
                at = differ(expected, found)
                if at is not None:
                    failed.append(seed)
                    label = "optimized" if optimized else "as it is"
                    print(
                        f"seed {seed}, {label}, step {at}\n  stock: {expected[at : at + 1]}\n  ours:  {found[at : at + 1]}",
                        flush=True,
                    )
                    if args.show:
                        print(program.graph)
    finally:
        theirs.stop()
        ours.stop()
    print(f"{args.seeds} programs from seed {args.seed}")
    if failed:
        sys.exit(f"{len(failed)} differences: seeds {sorted(set(failed))}")


if __name__ == "__main__":
    main()
