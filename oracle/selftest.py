"""Checks what all scripts of this folder rely on: one environment for stock, and workers that may die.

    python oracle/selftest.py

Prints a line per promise that does not hold, and fails if there is one. Imports no TensorFlow.
"""

import json
import os
import signal
import subprocess
import sys

if __name__ == "__main__":
    # What a machine may have set. Workers, which import this file too, are to inherit something better.
    os.environ.update(TF_ENABLE_ONEDNN_OPTS="1", XLA_FLAGS="--none", TF_NUM_INTRAOP_THREADS="1", OMP_NUM_THREADS="1")
    os.environ.update(http_proxy="http://127.0.0.1:9", LC_ALL="de_DE.ISO-8859-1", TZ="Asia/Tokyo", TF_CONFIG="{}")

import environment
import workers

EXPECTED = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TF_CONFIG": "{}",
}
EXPECTED |= dict.fromkeys(["XLA_FLAGS", "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "http_proxy"])


def seen():
    """The variables that this process has."""
    return {name: os.environ.get(name) for name in EXPECTED}


def seen_below():
    """The variables that a program sees which this process starts."""
    program = (
        "import json, os, sys; print(json.dumps({name: os.environ.get(name) for name in json.loads(sys.argv[1])}))"
    )
    return json.loads(subprocess.check_output([sys.executable, "-c", program, json.dumps(list(EXPECTED))]))


def everywhere():
    return [seen(), seen_below()]


def cases(deadly):
    """Runs the cases `a` to `d`; of `deadly` it dies."""
    done = []
    for case in "abcd":
        if workers.begin(case):
            if case in deadly:
                os.write(2, b"F0000 00:00:1.5 7 file.h:1] Check failed: it is " + case.encode() + b"\n")
                os.kill(os.getpid(), signal.SIGABRT)
            done.append(case)
    return done


def wrong_case():
    workers.begin("a")
    raise ValueError("the case is wrong")


def die_early():
    os._exit(3)


def main():
    jobs = [
        ("environment", everywhere),
        ("quiet", cases, ""),
        ("deadly", cases, "bd"),
        ("wrong", wrong_case),
        ("early", die_early),
    ]
    outcomes = dict(workers.run(jobs, 2))
    killed = "was killed by SIGABRT: Check failed: it is "
    promises = {
        "this process has the environment": seen() == EXPECTED,
        "workers and what they start have it": outcomes["environment"].value == [EXPECTED, EXPECTED],
        "a job returns its value": outcomes["quiet"].value == list("abcd") and not outcomes["quiet"].deaths,
        "a death is a finding with the case's name": outcomes["deadly"].deaths
        == {case: killed + case for case in "bd"},
        "the other cases run": outcomes["deadly"].value == list("ac"),
        "a failure says what and where": outcomes["wrong"].failure.startswith(
            "ValueError: the case is wrong\n  " + __file__
        ),
        "a death without a case ends the job": outcomes["early"].failure == "stock exited with 3, at no case",
        "workers come before TensorFlow": "tensorflow" not in sys.modules,
    }
    broken = [promise for promise, holds in promises.items() if not holds]
    for promise in broken:
        print(f"does not hold: {promise}")
    if broken:
        sys.exit(f"outcomes: {outcomes}")


if __name__ == "__main__":
    main()
