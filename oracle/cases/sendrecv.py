"""Sends and receives that a program makes itself, under names of its own choice."""

from values import *

DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


def cases(c):
    def pair(label, dtype="float", value=arr(2, 3), send=DEVICE, recv=DEVICE, names=("x", "x"), tensor_type=None):
        p = c.program(f"Send/{label}")
        given = p.const(value, dtype)
        attrs = {"send_device": send, "recv_device": recv, "send_device_incarnation": 1}
        p.node("Send", [given], name="send", T=dtype, tensor_name=names[0], **attrs)
        p.node("Recv", name="recv", tensor_type=tensor_type or dtype, tensor_name=names[1], **attrs)
        p.step(fetch=["recv"], target=["send"])
        p.step(fetch=["recv"], target=["send"])

    for dtype in ("float", "int64", "string", "bool"):
        pair(dtype, dtype)
    pair("empty", value=empty(0, 3))
    pair("type", tensor_type="int32")
    p = c.program("SyncDevice/alone")
    p.node("SyncDevice", name="s")
    p.step(target=["s"])
