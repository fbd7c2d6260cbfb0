"""Random small graphs, drawn from the declarations of ops, must get the same answers from our server as from stock.

    python oracle/differential/run.py --server target/release/ferroflow [--seconds 60 | --seeds N] [--seed N] [--only REGEX] [--wide]

Every graph has a seed of its own, which a failure prints. A failing graph is made small and printed as a case that can
be pasted into `oracle/cases/<family>.py`.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ORACLE = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ORACLE), str(ORACLE / "bench"), str(ORACLE / "differential")]

import environment
import answers
import draw
import servers
import shrink
import stock

_LARGEST = 100_000
_REPORT = 1000


class Peer:
    """A server that is started again when a graph kills it."""

    def __init__(self, start):
        self._start = start
        # What it did not survive, as words, and how often.
        self.deaths = collections.Counter()
        self._open()

    def _open(self):
        self.server = self._start()
        self._client = stock.Client(self.server.target)

    def ask(self, nodes):
        answer = answers.ask(self._client, nodes)
        if answer.code == answers.GONE:
            self.deaths[", ".join(node.op for node in nodes)] += 1
        # What still computes after its deadline would take the processor from all that follows.
        if answer.code in (answers.GONE, answers.LATE):
            self.server.stop()
            self._open()
        return answer


class Match:
    """Stock and ours, and how often they were asked what."""

    def __init__(self, theirs, ours):
        self.theirs, self.ours = theirs, ours
        self.count = collections.Counter()

    def draw(self, source):
        """Nodes that stock answers, grown one by one, and nodes that it refuses, each by itself."""
        nodes, refused, pool = [], [], []
        for number in range(source.random.randint(2, 9)):
            node = source.node(number, pool)
            if node is None:
                continue
            # Alone, with values fed: stock's answer gives later nodes inputs whose shapes are known.
            answer = self.theirs.ask([node])
            if answer.code != stock.OK:
                refused.append(node)
                self.count["refused"] += 1
            elif all(array.size <= _LARGEST for array in answer.arrays.values()):
                nodes.append(node)
                pool += [draw.Value(name.removesuffix(":0"), array) for name, array in answer.arrays.items()]
        return [part for part in (nodes, *([node] for node in refused)) if part]

    def compare(self, nodes):
        """Where the answers part, and both answers; None if they agree. Stock dies of some graphs: nothing to compare."""
        expected = self.theirs.ask(nodes)
        if expected.code in (answers.GONE, answers.LATE):
            self.count["stock gone" if expected.code == answers.GONE else "stock late"] += 1
            return None
        if expected.code == answers.UNREADABLE:
            return None
        actual = self.ours.ask(nodes)
        where = answers.difference(nodes, expected, actual)
        return where and (where, expected, actual)

    def is_amplified(self, nodes, name, expected, actual):
        """Whether an output differs only because rounding upstream was amplified: on stock's values its node agrees."""
        node = next(node for node in nodes if node.name == name.split(":")[0])
        keys = [draw.output_name(value) for value in node.inputs]
        made = [key for key in keys if key in expected.arrays]
        if all(expected.arrays[key].tobytes() == actual.arrays[key].tobytes() for key in made):
            return False
        others = {other.name for other in nodes if other is not node}
        return self.compare(shrink.without(nodes, others, expected.arrays)) is None

    def check(self, source, seed):
        """The graphs of one seed; returns a description of what differs, or None."""
        for part in self.draw(source):
            self.count["graphs"] += 1
            self.count["nodes"] += len(part)
            found = self.compare(part)
            if found is None:
                continue
            where, expected, actual = found
            if where != "status" and self.is_amplified(part, where, expected, actual):
                self.count["amplified rounding"] += 1
                continue
            if expected.arrays:
                part = shrink.shrink(part, expected.arrays, lambda rest: self.compare(rest) is not None)
                _, expected, actual = self.compare(part) or found
            return describe(part, seed, expected, actual)
        return None


def describe(nodes, seed, expected, actual):
    return "\n".join(
        [
            f"seed {seed}: {', '.join(node.op for node in nodes)}",
            f"  stock: {expected}",
            f"  ours:  {actual}",
            "  as a case:",
            shrink.case(nodes, seed),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="our binary; `stock` compares stock with itself")
    parser.add_argument("--seconds", type=float, default=60, help="0 goes on until a difference is found")
    parser.add_argument(
        "--seeds", type=int, default=0, help="stop after the graphs of this many seeds, whatever the time"
    )
    parser.add_argument("--seed", type=int, default=None, help="the first seed; a random one if not given")
    parser.add_argument("--only", default="", help="only ops whose name matches, those known to differ included")
    parser.add_argument("--plain", action="store_true", help="no special values and no types without a kernel")
    parser.add_argument(
        "--wide",
        action="store_true",
        help="inputs by recipes that fit each op, updates of variables, and random numbers with seeds, too",
    )
    parser.add_argument("--keep-going", action="store_true", help="go on after a difference; each op is reported once")
    args = parser.parse_args()

    if args.server == "stock":
        listed = [{"name": name, "any": True, "types": {}, "accuracy": "exact"} for name in draw.OPS]
    else:
        listed = json.loads(subprocess.check_output([args.server, "ops", "--output", "json"]))
    ops = [op for op in draw.supported(listed, args.wide) if re.search(args.only, op)]
    if args.only:
        ops += [op for op in draw.known() if re.search(args.only, op)]
    if not ops:
        sys.exit("no op to draw from")
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
    print(f"first seed {seed}; drawing from {len(ops)} ops; {len(draw.known())} others are known to differ", flush=True)
    start = servers.stock if args.server == "stock" else lambda: servers.ferroflow(args.server)
    match, failed = Match(Peer(servers.stock), Peer(start)), {}
    end = time.monotonic() + args.seconds if args.seconds and not args.seeds else float("inf")
    last = seed + args.seeds if args.seeds else float("inf")
    try:
        while seed < last and time.monotonic() < end and (args.keep_going or not failed):
            found = match.check(draw.Source(seed, ops, args.plain, args.wide), seed)
            if found:
                what = found.splitlines()[0].split(": ")[1]
                if what not in failed:
                    print(found, flush=True)
                failed.setdefault(what, seed)
            seed += 1
            if seed % _REPORT == 0:
                print(f"at seed {seed}", flush=True)
    finally:
        for peer in (match.theirs, match.ours):
            peer.server.stop()
    for what, times in sorted(match.theirs.deaths.items()):
        print(f"stock died of {what}, {times} times")
    print(f"next seed {seed}; " + ", ".join(f"{n} {what}" for what, n in sorted(match.count.items())))
    if failed:
        sys.exit(f"{len(failed)} differences: " + ", ".join(f"{what} (seed {at})" for what, at in failed.items()))


if __name__ == "__main__":
    main()
