"""The protocol below the client: codes and texts of answers to requests that no client sends."""

from report import show, v1
from wire import Caller, convert, message, named_tensor

import tensorflow as tf


def brief(answer):
    """An answer as text, without what differs from run to run."""
    return answer if isinstance(answer, tuple) else str(answer)


def run(target):
    caller = Caller(target)
    x = v1.placeholder(tf.float32, [], name="x")
    y = tf.add(x, 1.0, name="y")
    tf.multiply(y, 2.0, name="z")
    tf.constant(3.0, name="c")
    tf.debugging.check_numerics(x, "bad", name="ck")
    graph = convert("GraphDef", v1.get_default_graph().as_graph_def())
    handle = caller("CreateSession", graph_def=graph).session_handle
    show("handle", [len(handle), all(digit in "0123456789abcdef" for digit in handle)])
    unary(caller)
    versions(caller, handle)
    steps(caller, handle)
    callables(caller, handle)
    partial_runs(caller, handle)
    devices(caller, handle)
    show("closed", brief(caller("CloseSession", session_handle=handle)))
    show("closed again", caller("CloseSession", session_handle=handle)[0])
    worker(caller)


def unary(caller):
    show("unknown method", caller.raw("/tensorflow.MasterService/Nothing", b""))
    show("unknown service", caller.raw("/grpc.health.v1.Health/Check", b""))
    for method in ["CreateSession", "RunStep", "ListDevices"]:
        show(f"garbage to {method}", caller.raw(f"/tensorflow.MasterService/{method}", b"\xff" * 5)[0])
    config = convert("ConfigProto", v1.ConfigProto(use_per_session_threads=True))
    show("thread pools", caller("CreateSession", config=config))
    for method in ["ExtendSession", "RunStep", "CloseSession", "ListDevices", "ReleaseCallable", "MakeCallable"]:
        show(f"{method} of an unknown session", caller(method, session_handle="unknown"))


def versions(caller, handle):
    show("wrong version", caller("ExtendSession", session_handle=handle, current_graph_version=7))
    show("right version", caller("ExtendSession", session_handle=handle).new_graph_version)
    twice = message("GraphDef")()
    twice.node.add(name="c", op="NoOp")
    extend = dict(session_handle=handle, graph_def=twice, current_graph_version=1)
    show("node twice", caller("ExtendSession", **extend))
    future = message("GraphDef")()
    future.versions.min_consumer = 100_000
    show("a graph of the future", caller("CreateSession", graph_def=future)[0])


def steps(caller, handle):
    def step(label, body=True, **fields):
        answer = caller("RunStep", session_handle=handle, store_errors_in_response_body=body, **fields)
        if isinstance(answer, tuple):
            show(label, answer)
        elif answer.status_code:
            show(label, [answer.status_code, answer.status_error_message])
        else:
            show(label, [(each.name, each.tensor.tensor_content) for each in answer.tensor])

    fed, again, nan = named_tensor("x:0", 2.0), named_tensor("x:0", 3.0), named_tensor("x:0", float("nan"))
    step("fetch", feed=[fed], fetch=["z:0"])
    step("fetch twice", feed=[fed], fetch=["z:0", "z:0"])
    step("target", feed=[fed], target=["z"])
    step("failing op in the body", feed=[nan], fetch=["ck:0"])
    step("failing op as a status", body=False, feed=[nan], fetch=["ck:0"])
    step("fed twice", feed=[fed, again], fetch=["z:0"])
    step("fed and fetched", feed=[fed], fetch=["x:0"])
    step("nothing to do", feed=[fed])
    step("unknown fetch", fetch=["nothing:0"])
    step("unknown target", target=["nothing"])
    step("unknown feed", feed=[named_tensor("nothing:0", 1.0)], fetch=["c:0"])
    step("no such output", fetch=["c:3"])
    step("wrong type", feed=[named_tensor("x:0", 1)], fetch=["z:0"])
    step("another shape", feed=[named_tensor("x:0", [1.0, 2.0])], fetch=["z:0"])
    step("unknown partial run", fetch=["c:0"], partial_run_handle="9")
    step("first with this id", fetch=["c:0"], request_id=77)
    answer = caller("RunStep", session_handle=handle, fetch=["c:0"], request_id=77)
    show("second with this id", [answer[0], answer[1].split(".")[0]])


def callables(caller, handle):
    options = message("CallableOptions")(feed=["x:0"], fetch=["z:0"])
    tensor = convert("TensorProto", tf.make_tensor_proto(1.0))
    callable_handle = caller("MakeCallable", session_handle=handle, options=options).handle
    show("first callable", callable_handle)
    answer = caller("RunCallable", session_handle=handle, handle=callable_handle, feed=[tensor])
    show("ran", [each.tensor_content for each in answer.fetch])
    show("released", brief(caller("ReleaseCallable", session_handle=handle, handle=callable_handle)))
    show("after release", caller("RunCallable", session_handle=handle, handle=callable_handle, feed=[tensor]))
    show("never made", caller("RunCallable", session_handle=handle, handle=12))
    show("releasing nothing", brief(caller("ReleaseCallable", session_handle=handle, handle=12)))
    options = message("CallableOptions")(fetch=["nothing:0"])
    show("bad names", caller("MakeCallable", session_handle=handle, options=options))
    options = message("CallableOptions")(fetch=["z:0"])
    options.tensor_connection.add(from_tensor="c:0", to_tensor="x:0")
    callable_handle = caller("MakeCallable", session_handle=handle, options=options).handle
    answer = caller("RunCallable", session_handle=handle, handle=callable_handle)
    show("connected", [each.tensor_content for each in answer.fetch])


def partial_runs(caller, handle):
    def setup(**fields):
        answer = caller("PartialRunSetup", session_handle=handle, **fields)
        return answer if isinstance(answer, tuple) else answer.partial_run_handle

    show("unknown feed", setup(feed=["nothing:0"], fetch=["z:0"]))
    show("nothing to do", setup())
    run_handle = setup(feed=["x:0"], fetch=["z:0", "c:0"])
    for label, fields in [
        ("c", dict(fetch=["c:0"])),
        ("c again", dict(fetch=["c:0"])),
        ("z without its feed", dict(fetch=["z:0"])),
        ("undeclared feed", dict(feed=[named_tensor("y:0", 1.0)], fetch=["z:0"])),
        ("undeclared fetch", dict(feed=[named_tensor("x:0", 1.0)], fetch=["y:0"])),
        ("z", dict(feed=[named_tensor("x:0", 2.0)], fetch=["z:0"])),
        ("over", dict(fetch=["z:0"])),
    ]:
        fields = dict(fields, session_handle=handle, partial_run_handle=run_handle, store_errors_in_response_body=True)
        answer = caller("RunStep", **fields)
        contents = [each.tensor.tensor_content for each in answer.tensor]
        show(f"partial run: {label}", [answer.status_code, answer.status_error_message, contents])


def devices(caller, handle):
    for label, answer in [
        ("session's devices", caller("ListDevices", session_handle=handle)),
        ("server's devices", caller("ListDevices")),
    ]:
        local = [(each.name, each.device_type, each.memory_limit, each.xla_global_id) for each in answer.local_device]
        show(label, [local, len(answer.remote_device)])


def worker(caller):
    status = caller("GetStatus", service="Worker")
    show("status", [(each.name, each.incarnation != 0) for each in status.device_attributes])
    show("session without a name", caller("CreateWorkerSession", service="Worker"))
    show("session", brief(caller("CreateWorkerSession", service="Worker", session_handle="s")))
    show("session again", brief(caller("CreateWorkerSession", service="Worker", session_handle="s")))
    show("deleted", brief(caller("DeleteWorkerSession", service="Worker", session_handle="s")))
    show("deleting nothing", brief(caller("DeleteWorkerSession", service="Worker", session_handle="s")))
    show("cleanup of a step", brief(caller("CleanupGraph", service="Worker", step_id=1)))
    show("logging", brief(caller("Logging", service="Worker", fetch_step_id=[1])))
    show("tracing", caller("Tracing", service="Worker"))
