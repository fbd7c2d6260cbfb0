"""Parameter servers that are killed while they replace a checkpoint: stock reads a whole one, the new one or the one before.

python killed_saves.py --server BINARY [--kills N] [--seed N] [--megabytes N]
"""

import argparse
import pathlib
import random
import shutil
import sys
import tempfile
import time

# Must come first: it says how TensorFlow is to be started.
import tasks  # isort: skip

from report import v1

import numpy as np
import tensorflow as tf

VERDICTS = True
LAYOUTS = ("ours",)

SERVERS = 2
# Of each server.
VARIABLES = 3


def orchestrate(layout, binary, kills=8, seed=1, size=96 << 20, note=lambda text: None):
    chance = random.Random(seed)
    # Kills spread over a save and a little more, however fast the machine is.
    wrong, longest = [], 0.2
    with tasks.Cluster({"ps": layout["ps"][:SERVERS]}, binary) as cluster, tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        journal = directory / "journal"
        journal.write_text("")
        for number in range(kills):
            client = tasks.Client(save, cluster, directory, journal, number * 1000, size)
            if not client.wait_for("saved", 300):
                wrong.append(f"nothing was saved: {client.errors()}")
                break
            began = time.monotonic()
            if not client.wait_for("saved again", 300):
                wrong.append(f"saving ended: {client.errors()}")
                break
            longest = max(longest, time.monotonic() - began)
            time.sleep(chance.uniform(0, 1.2 * longest))
            victim = cluster.task("ps", chance.randrange(SERVERS))
            victim.kill()
            client.kill()
            tried, acknowledged = notes(journal)
            (found,) = tasks.Client(read, directory).finish(300)[-1:] or ["nothing"]
            whole = found.isdigit() and acknowledged <= int(found) <= tried
            note(f"kill {number}: {victim.name}, saved {acknowledged}, tried {tried}, found {found}")
            if not whole:
                wrong.append(f"kill {number}: saved {acknowledged}, tried {tried}, found {found}")
            victim.start()
            victim.wait()
            left = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
            note(f"{left >> 20} MB in the directory")
            for temporary in directory.glob("*temp*"):
                shutil.rmtree(temporary, ignore_errors=True)
    print(f"every kill left a whole checkpoint {wrong or ''}: {not wrong}", flush=True)
    return wrong


def notes(journal):
    """The last number that was tried to save, and the last one that was saved."""
    lines = [line.split() for line in journal.read_text().splitlines()]
    last = lambda word: max([int(value) for kind, value in lines if kind == word], default=-1)
    return last("try"), last("done")


def save(cluster, directory, journal, first, size):
    """Saves the same variables with a larger number in all of them, again and again under one name."""
    with tf.Graph().as_default() as graph, open(journal, "a", buffering=1) as file:
        rows = size // 4 // 64 // SERVERS // VARIABLES
        value = v1.placeholder(tf.float32, [])
        fill = []
        for server in range(SERVERS):
            with tf.device(f"/job:ps/task:{server}"):
                for i in range(VARIABLES):
                    v = v1.get_variable(
                        f"v{server}_{i}", [rows, 64], initializer=v1.zeros_initializer(), use_resource=True
                    )
                    fill.append(v1.assign(v, tf.fill([rows, 64], value)).op)
        saver = v1.train.Saver(sharded=True)
        with v1.Session(cluster.target("ps", 0), graph=graph) as session:
            session.run(v1.global_variables_initializer())
            for number in range(first, first + 1000):
                session.run(fill, {value: number})
                file.write(f"try {number}\n")
                saver.save(session, str(directory / "model"), write_meta_graph=False)
                file.write(f"done {number}\n")
                print("saved" if number == first else "saved again", flush=True)


def read(directory):
    """The number that all variables of the checkpoint have."""
    reader = tf.train.load_checkpoint(str(directory / "model"))
    names = sorted(reader.get_variable_to_shape_map())
    assert len(names) == SERVERS * VARIABLES, names
    found = set()
    for name in names:
        values = reader.get_tensor(name)
        found |= {float(values.min()), float(values.max())}
    print(int(found.pop()) if len(found) == 1 else f"several numbers: {np.sort(list(found))}", flush=True)


def main():
    import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True, help="our binary")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--megabytes", type=int, default=1024)
    arguments = parser.parse_args()
    tasks.preload()
    tell = lambda text: print(f"  {text}", flush=True)
    sys.exit(
        1
        if orchestrate(
            run.LAYOUTS["ours"], arguments.server, arguments.kills, arguments.seed, arguments.megabytes << 20, tell
        )
        else 0
    )


if __name__ == "__main__":
    main()
