"""Random small graphs, drawn from the declarations of ops, must get the same answers from our server as from stock.

    python oracle/differential/run.py --server target/release/ferroflow [--seconds 60] [--seed N] [--only REGEX]

Every graph has a seed of its own, which a failure prints. A failing graph is made small and printed as a case that can
be pasted into `oracle/cases/<family>.py`.
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import time

ORACLE = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ORACLE), str(ORACLE / "bench"), str(ORACLE / "differential")]

import answers  # noqa: E402
import draw  # noqa: E402
import servers  # noqa: E402
import shrink  # noqa: E402
import stock  # noqa: E402

_LARGEST = 100_000


class Peer:
    """A server that is started again when a graph kills it."""

    def __init__(self, start):
        self._start = start
        self.restart()

    def restart(self):
        self.server = self._start()
        self.client = stock.Client(self.server.target)

    def ask(self, nodes):
        return answers.ask(self.client, nodes)


def graph(source, theirs):
    """Nodes that stock answers, grown one by one, and nodes that it refuses, each by itself."""
    nodes, refused, pool = [], [], []
    for number in range(source.random.randint(2, 9)):
        node = source.node(number, pool)
        if node is None:
            continue
        # Alone, with values fed: stock's answer gives later nodes inputs whose shapes are known.
        alone = draw.Node(node.name, node.op, node.attrs, [draw.Value(v.name.replace(":", "_"), v.array) for v in node.inputs], node.outputs)
        answer = theirs.ask([alone])
        if answer.code != stock.OK:
            refused.append(alone)
            continue
        if any(array.size > _LARGEST for array in answer.arrays.values()):
            continue
        nodes.append(node)
        pool += [draw.Value(name if not name.endswith(":0") else name[:-2], array) for name, array in answer.arrays.items()]
    return nodes, refused


def amplified(nodes, theirs, ours, name):
    """Whether output `name` differs only because its inputs differ by rounding: alone, on stock's values, its node agrees."""
    node = next(node for node in nodes if node.name == name.split(":")[0])
    expected = answers.ask(theirs.client, nodes)
    actual = answers.ask(ours.client, nodes)
    for value in node.inputs:
        key = value.name if ":" in value.name else value.name + ":0"
        if expected.arrays and actual.arrays and key in expected.arrays:
            if expected.arrays[key].tobytes() != actual.arrays[key].tobytes():
                alone = node
                for other in nodes:
                    alone = shrink._fed(alone, other, expected)
                return shrink.confirm(theirs.client, ours.client, [alone]) is None
    return False


def check(seed, ops, theirs, ours, count):
    """One seed; returns a description of what differs, or None."""
    source = draw.Source(seed, ops)
    try:
        nodes, refused = graph(source, theirs)
    except answers.Broken:
        # Stock ends its process on some inputs; nothing to compare with.
        theirs.restart()
        count["stock gone"] += 1
        return None
    parts = ([nodes] if nodes else []) + [[node] for node in refused]
    for part in parts:
        count["refused" if part is not nodes else "graphs"] += 1
        count["nodes"] += len(part)
        try:
            expected = theirs.ask(part)
        except answers.Broken:
            theirs.restart()
            count["stock gone"] += 1
            continue
        try:
            actual = ours.ask(part)
        except answers.Broken as error:
            ours.restart()
            return describe(part, seed, expected, f"our server {error}")
        where = answers.difference(expected, actual)
        if where is None:
            continue
        if where != "status" and amplified(part, theirs, ours, where):
            count["amplified rounding"] += 1
            continue
        small = shrink.shrink(part, expected, lambda rest: shrink.confirm(theirs.client, ours.client, rest) is not None)
        expected, actual = shrink.confirm(theirs.client, ours.client, small) or (expected, actual)
        return describe(small, seed, expected, actual)
    return None


def describe(nodes, seed, expected, actual):
    return "\n".join([f"seed {seed}: {', '.join(node.op for node in nodes)}", f"  stock: {expected}", f"  ours:  {actual}", "  as a case:", shrink.case(nodes, seed)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="our binary; `stock` compares stock with itself")
    parser.add_argument("--seconds", type=float, default=60, help="0 goes on until a difference is found")
    parser.add_argument("--seed", type=int, default=None, help="the first seed; a random one if not given")
    parser.add_argument("--only", default="", help="only ops whose name matches")
    parser.add_argument("--keep-going", action="store_true", help="go on after a difference; each op is reported once")
    args = parser.parse_args()

    if args.server == "stock":
        listed = [{"name": name, "any": True, "types": {}, "accuracy": "exact"} for name in draw.OPS]
    else:
        listed = json.loads(subprocess.check_output([args.server, "ops", "--output", "json"]))
    ops = [op for op in draw.supported(listed) if re.search(args.only, op)]
    if not ops:
        sys.exit("no op to draw from")
    seed = args.seed if args.seed is not None else int.from_bytes(__import__("os").urandom(4), "little")
    print(f"first seed {seed}; drawing from {len(ops)} ops", flush=True)
    theirs, ours = Peer(servers.stock), Peer(servers.stock if args.server == "stock" else lambda: servers.ferroflow(args.server))
    count, failed = collections.Counter(), {}
    end = time.monotonic() + args.seconds if args.seconds else float("inf")
    while time.monotonic() < end:
        found = check(seed, ops, theirs, ours, count)
        seed += 1
        if found:
            key = found.splitlines()[0].split(": ")[1]
            if key not in failed:
                print(found, flush=True)
            failed.setdefault(key, seed - 1)
            if not args.keep_going:
                break
    theirs.server.stop()
    ours.server.stop()
    print(f"next seed {seed}; " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))
    if failed:
        sys.exit(f"{len(failed)} differences: " + ", ".join(f"{what} (seed {at})" for what, at in failed.items()))


if __name__ == "__main__":
    main()
