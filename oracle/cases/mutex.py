"""Mutexes: a lock is held as long as its value lives."""

import numpy as np


def cases(c):
    p = c.program("MutexLock/steps")
    p.node("MutexV2", name="mutex", shared_name="m")
    p.node("MutexLock", ["mutex"], name="lock")
    p.node("ConsumeMutexLock", ["lock"], name="consume")
    p.const(np.float32(1), name="one")
    p.node("Identity", ["one", "^consume"], name="after", T="float")
    for _ in range(3):
        p.step(fetch=["after"])
    p = c.program("MutexLock/two_in_a_row")
    p.node("MutexV2", name="mutex")
    previous = None
    for i in range(2):
        p.node("MutexLock", ["mutex", *([f"^{previous}"] if previous else [])], name=f"lock{i}")
        previous = p.node("ConsumeMutexLock", [f"lock{i}"], name=f"consume{i}")
    p.const(np.float32(1), name="one")
    p.node("Identity", ["one", f"^{previous}"], name="after", T="float")
    p.step(fetch=["after"])
    p = c.program("ConsumeMutexLock/other")
    p.node("EmptyTensorMap", name="map")
    p.node("ConsumeMutexLock", ["map"], name="consume")
    p.step(target=["consume"], message="Expected input to contain a SharedLockReleaser object")
