"""The ratio suite: the same work on our server and on a stock one, in turn, from the same stock client.

    python oracle/bench/run.py --server target/release/ferroflow [--trainer target/release/trainer] [--only REGEX] [--quick] [--output FILE]

Both servers run in processes of their own. Every workload opens on both, warms up, and then takes samples in turn; a
ratio above 1 means that ours is better. The spread is that of the ratios of neighboring samples, from quartile to
quartile.
"""

import argparse
import dataclasses
import os
import pathlib
import platform
import re
import statistics
import sys
import time

import clusters
import coordinators
import servers
import trainers

NOTES = pathlib.Path(__file__).resolve().parents[2] / "benches" / "notes.md"


@dataclasses.dataclass
class Row:
    """One line of the table."""

    name: str
    unit: str
    ours: list
    stock: list
    rate: bool = False
    least_ratio: float | None = None
    most: float | None = None
    error: str = ""

    def ratios(self):
        pairs = zip(self.ours, self.stock)
        # A difference of two times can come out at or below zero on a busy machine; such a pair says nothing.
        return [(o / s if self.rate else s / o) for o, s in pairs if o > 0 and s > 0]

    def is_close(self):
        """Whether some samples meet a bar and others do not."""
        return clusters.straddles(self.least_ratio, self.ratios()) or clusters.straddles(self.most, self.ours)

    def met(self):
        """Whether every bar is met; None without a bar."""
        if self.least_ratio is None and self.most is None:
            return None
        ratios = self.ratios()
        if self.error or not ratios:
            return False
        ratio = statistics.median(ratios)
        return (self.least_ratio is None or ratio >= self.least_ratio) and (
            self.most is None or statistics.median(self.ours) <= self.most
        )

    def text(self):
        bars = [f"≥ {self.least_ratio:g}×"] if self.least_ratio is not None else []
        bars += [f"≤ {self.most:g} {self.unit}"] if self.most is not None else []
        verdict = {None: "", True: "met", False: "**missed**"}[self.met()]
        if self.error:
            return f"| {self.name} | failed: {self.error} | | | | {', '.join(bars)} | {verdict} |"
        ratios = self.ratios()
        ratio, spread = ("?", "") if not ratios else (f"{statistics.median(ratios):.2f}×", _spread(ratios))
        ours, stock = (f"{_round(statistics.median(samples))} {self.unit}" for samples in (self.ours, self.stock))
        return f"| {self.name} | {ours} | {stock} | {ratio} | {spread} | {', '.join(bars)} | {verdict} |"


def _spread(ratios):
    if len(ratios) < 4:
        return f"{min(ratios):.2f}–{max(ratios):.2f}"
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{low:.2f}–{high:.2f}"


def _round(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def start_up(binary, runs):
    """Time to the ready line, and resident memory once idle."""
    ours, stock, ours_memory, stock_memory = [], [], [], []
    for _ in range(runs):
        for start, times, memory in (
            (lambda: servers.ferroflow(binary), ours, ours_memory),
            (servers.stock, stock, stock_memory),
        ):
            with start() as server:
                times.append(server.startup * 1e3)
                # Threads that start in the background have settled by then.
                time.sleep(0.3)
                memory.append(server.resident() / 1e6)
    yield Row("start-up to ready", "ms", ours, stock, most=100)
    yield Row("resident memory, idle", "MB", ours_memory, stock_memory, least_ratio=20)


def cluster_start_up(binary, runs):
    """Time to a cluster of one parameter server and two workers: one command, and stock's servers by hand."""
    ours, stock = [], []
    for _ in range(runs):
        ours.append(servers.launched(binary) * 1e3)
        stock.append(servers.stock_by_hand() * 1e3)
    yield Row("start of 1 ps and 2 workers to ready", "ms", ours, stock, most=300)


def measure(workload, targets, rounds, close):
    """Samples of one workload from both servers in turn; which goes first changes every round. A close one takes more."""
    row = Row(workload.name, workload.unit, [], [], workload.rate, workload.least_ratio, workload.most)
    try:
        samplers = [workload.open(target) for target in targets]
        for sampler in samplers:
            sampler()
        for round_number in range(clusters.CLOSE * rounds):
            if round_number >= rounds and not row.is_close():
                break
            for i in (0, 1) if round_number % 2 == 0 else (1, 0):
                (row.ours, row.stock)[i].append(samplers[i]())
    except Exception as error:  # An op that one side lacks fails its own row, not the suite.
        row.error = f"{type(error).__name__}: {_reason(error)}"
    close()
    return row


def _reason(error):
    """The line of a client's error that says what the server said."""
    frame = ("Graph execution error", "Detected at", "Node:", "From /job:")
    said = [line for line in str(error).splitlines() if line.strip() and not line.startswith(frame)]
    return said[0].strip()[:160] if said else ""


def report(rows, cluster_rows, program_rows):
    """The whole page."""
    import tensorflow as tf

    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    out = [
        "# Ferroflow and stock TensorFlow, side by side",
        "",
        f"Written by `cargo xtask bench` against TensorFlow {tf.__version__} on {os.cpu_count()} cores"
        f" ({cpu[1] if cpu else platform.machine()}). A ratio above 1 means that Ferroflow is better;"
        " the spread is that of the ratios of neighboring samples, quartile to quartile.",
        "",
        "| work | ours | stock | ratio | spread | bar | |",
        "|---|---|---|---|---|---|---|",
        *(row.text() for row in rows),
    ]
    if cluster_rows:
        out += ["", "## Clusters", "", "Ratios with their smallest and largest; the client is stock's.", ""]
        out += [*clusters.HEADER, *(row.text() for row in cluster_rows)]
    if program_rows:
        out += [
            "",
            "## Training programs",
            "",
            "A program in Python with stock's runtime, and one in Rust with ours; ratios with their smallest and largest.",
            "",
        ]
        out += [*trainers.HEADER, *(row.text() for row in program_rows)]
    if NOTES.exists():
        out += ["", NOTES.read_text().rstrip()]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="our binary; `stock` compares stock with itself")
    parser.add_argument(
        "--trainer", help="our training program, benches/src/bin/trainer.rs; without it, training programs are left out"
    )
    parser.add_argument("--only", default="", help="only workloads whose name matches")
    parser.add_argument("--quick", action="store_true", help="three rounds each")
    parser.add_argument("--output", type=pathlib.Path, help="also write the page here")
    args = parser.parse_args()

    wanted = re.compile(args.only)
    rows, cluster_rows, program_rows = [], [], []

    def add(row, to=rows):
        to.append(row)
        print(row.text(), flush=True)
        if args.output:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(report(rows, cluster_rows, program_rows))

    # First, because they fork this process, which must not have used TensorFlow by then.
    for row in clusters.rows(args.server, wanted, args.quick):
        add(row, cluster_rows)
    for row in coordinators.rows(args.server, wanted, args.quick):
        add(row, cluster_rows)
    if args.trainer:
        for row in trainers.rows(args.server, args.trainer, wanted, args.quick):
            add(row, program_rows)
    if args.server != "stock" and any(wanted.search(name) for name in ("start-up", "memory")):
        for row in start_up(args.server, 2 if args.quick else 5):
            add(row)
    if args.server != "stock" and wanted.search("start of 1 ps and 2 workers to ready"):
        for row in cluster_start_up(args.server, 2 if args.quick else 5):
            add(row)
    import input_workloads
    import workloads

    everything = [*workloads.all_workloads(), *input_workloads.all_workloads()]
    chosen = [workload for workload in everything if wanted.search(workload.name)]
    if chosen:
        ours = servers.stock() if args.server == "stock" else servers.ferroflow(args.server)
        with ours, servers.stock() as stock:
            for workload in chosen:
                rounds = 3 if args.quick else workload.rounds
                add(measure(workload, (ours.target, stock.target), rounds, workloads.close))
    measured = rows + cluster_rows + program_rows
    missed = [row.name for row in measured if row.met() is False]
    print(f"{len(measured)} rows, {len(missed)} missed" + "".join(f"\n  missed: {name}" for name in missed))


if __name__ == "__main__":
    sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]
    main()
