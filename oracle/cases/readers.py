"""Readers of the queue era on files that are not there, files by name; what they read is in interop/input_files.py."""

from values import *

import numpy as np


def text(values):
    return convert(values, "string")


def reader(c, op, name, **attrs):
    """A reader and a queue of names, in the second generation or the first."""
    first = not op.endswith("V2")
    version = "" if first else "V2"
    p = c.program(f"{op}/{name}", producer=25 if first else None)
    p.node(f"FIFOQueue{version}", name="names", component_types=["string"], shapes=[[]])
    p.placeholder("string", name="n")
    p.node(f"QueueEnqueueMany{version}", ["names", "n"], name="put", Tcomponents=["string"])
    p.node(f"QueueClose{version}", ["names"], name="close")
    p.node(op, name="reader", **attrs)
    p.const(np.int64(3), name="three")
    p.placeholder("string", name="state_in")
    p.node(f"ReaderRead{version}", ["reader", "names"], name="read")
    p.node(f"ReaderReadUpTo{version}", ["reader", "names", "three"], name="read_up_to")
    p.node(f"ReaderNumRecordsProduced{version}", ["reader"], name="produced")
    p.node(f"ReaderNumWorkUnitsCompleted{version}", ["reader"], name="completed")
    p.node(f"ReaderSerializeState{version}", ["reader"], name="state")
    p.node(f"ReaderRestoreState{version}", ["reader", "state_in"], name="restore")
    p.node(f"ReaderReset{version}", ["reader"], name="reset")
    return p


def files(c):
    path = text("/no/such/directory/file")
    c.op("ReadFile", [path], message="/no/such/directory/file; No such file or directory")
    c.op("ReadFile", [text(["a"])], "vector")
    c.op("ReadFile", [text("foo://a/b")], "scheme", message=SENTENCE)
    c.op("ReadFile", [text("/tmp")], "directory")
    c.op("WriteFile", [text("/proc/no/such/file"), text("x")])
    c.op("WriteFile", [text("/tmp"), text("x")], "directory")
    c.op("WriteFile", [text(["a"]), text("x")], "vector")
    c.op("MatchingFiles", [text("/no/such/directory/*")], "none")
    c.op("MatchingFiles", [text(["/etc/passw?", "/etc/host[n]ame", "/et*/passwd"])], "vector")
    c.op("MatchingFiles", [text([["a"]])], "matrix")


def readers(c):
    for op in ("IdentityReader", "IdentityReaderV2"):
        p = reader(c, op, "life")
        p.step(target=["put"], feed={"n": text(["a", "b", "c"])})
        p.step(fetch=["produced", "completed", "state"])
        p.step(fetch=["read:0", "read:1"])
        p.step(fetch=["produced", "completed", "state"])
        p.step(fetch=["read_up_to:0", "read_up_to:1"])
        p.step(target=["reset"])
        p.step(fetch=["produced", "completed", "state"])
        p.step(target=["close"])
        p.step(fetch=["read:0", "read:1"])
        p.step(fetch=["read:0"], message="is closed and has insufficient elements")
        p.step(target=["restore"], feed={"state_in": text(b"\x08\x02\x10\x02\x18\x05\x22\x01x")})
        p.step(fetch=["produced", "completed", "state"])
        p.step(target=["restore"], feed={"state_in": text(b"\x08\x02\x10\x01")}, message="Inconsistent work started")
        p.step(fetch=["produced", "completed", "state"])
        p.step(target=["restore"], feed={"state_in": text("nonsense")}, message="Could not parse state for")
        negative = b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        p.step(target=["restore"], feed={"state_in": text(negative)}, message="Unexpected negative value")
    for op, attrs in {
        "WholeFileReader": {},
        "WholeFileReaderV2": {},
        "TextLineReader": {},
        "TextLineReaderV2": {},
        "TFRecordReader": {},
        "TFRecordReaderV2": {},
        "FixedLengthRecordReaderV2": {"record_bytes": 4},
    }.items():
        p = reader(c, op, "missing", **attrs)
        p.step(target=["put"], feed={"n": text(["/no/such/file", "/dev/null"])})
        p.step(fetch=["read:0"], message="/no/such/file; No such file or directory")
        p.step(fetch=["produced", "completed"])
        p.step(target=["close"])
        p.step(fetch=["read:1"])
        p.step(fetch=["produced", "completed"])
        p.step(fetch=["state"])
        p.step(target=["restore"], feed={"state_in": text("")})
    p = reader(c, "FixedLengthRecordReader", "encoding", record_bytes=4)
    p.step(target=["reader"], message="No attr named 'encoding' in NodeDef")
    for name, attrs in {"header": {"header_bytes": -1}, "hop": {"hop_bytes": -2}}.items():
        p = reader(c, "FixedLengthRecordReaderV2", f"negative_{name}", record_bytes=4, **attrs)
        p.step(target=["reader"], message=SENTENCE)
    p = reader(c, "TextLineReaderV2", "negative_lines", skip_header_lines=-1)
    p.step(target=["reader"], message=SENTENCE)
    p = c.program("FakeQueue/reference")
    p.node("FIFOQueueV2", name="q", component_types=["float"], shapes=[[]])
    p.node("FakeQueue", ["q"], name="fake")
    p.placeholder("float", name="x")
    p.node("QueueEnqueue", ["fake", "x"], name="put", Tcomponents=["float"])
    p.node("QueueSizeV2", ["q"], name="size")
    p.step(target=["put"], feed={"x": np.float32(1)})
    p.step(fetch=["size"])


def settings(c):
    """Options of file systems, which none has, and records of files that are not there."""
    for scheme in ("", "file", "gs", "nothing"):
        c.op("FileSystemSetConfiguration", [scheme, "key", "value"], scheme or "none")
    c.op("FileSystemSetConfiguration", [["file"], "key", "value"], "vector")
    for label, attrs in {"missing": {}, "parallelism": {"file_parallelism": -1}, "batch": {"batch_size": -1}}.items():
        p = c.program(f"RecordInput/{label}")
        p.node("RecordInput", name="r", file_pattern="/nowhere/at-*", **attrs)
        p.step(fetch=["r"])


def cases(c):
    files(c)
    readers(c)
    settings(c)
