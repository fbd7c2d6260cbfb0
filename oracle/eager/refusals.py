"""Calls that no client makes: operations, graphs and messages that are wrong, and floods of contexts and values."""

from protocol import CONTEXT, FLOAT, LOCAL, Eager, convert, function
from report import show
from wire import message

import tensorflow as tf


def run(targets):
    eager = Eager(targets[0])
    contexts(eager)
    eager.create()
    messages(eager)
    operations(eager)
    functions(eager)
    components(eager)
    packed(eager)
    floods(eager)
    eager("CloseContext", context_id=CONTEXT)


def brief(answer):
    """The code of a failure, and of its text what does not name nodes and places in stock's source."""
    if not isinstance(answer, tuple):
        return answer
    return answer[0]


def contexts(eager):
    bare = lambda **fields: brief(eager("CreateContext", context_id=CONTEXT, keep_alive_secs=600, **fields))
    server = lambda **fields: dict(job_name="there", task_index=0, protocol="grpc", **fields)
    tasks = lambda *addresses: dict(job=[dict(name="there", tasks=dict(enumerate(addresses)))])
    show("not its task", bare(server_def=server(cluster=tasks()) | dict(task_index=7)))
    eager("CloseContext", context_id=CONTEXT)


def messages(eager):
    path = "/tensorflow.eager.EagerService/"
    show("unknown method", eager.caller.raw(path + "Nothing", b"")[0])
    show("garbage", isinstance(eager.caller.raw(path + "Enqueue", b"\xff\xff\xff\xff"), tuple))
    request = message("eager.EnqueueRequest")(context_id=CONTEXT, queue=[eager.send(1, [1.0, 2.0])])
    data = request.SerializeToString()
    answers = [eager.caller.raw(path + "Enqueue", data[:length]) for length in range(len(data))]
    show("cut short", all(isinstance(answer, (tuple, bytes)) for answer in answers))
    show("still there", eager("KeepAlive", context_id=CONTEXT).context_view_id)


def operations(eager):
    tell = lambda label, *items: show(label, brief(eager.enqueue(*items)))
    tell("sent", eager.send(1, [1.0, 2.0]))
    tensor = convert("TensorProto", tf.make_tensor_proto([1.0, 2.0]))
    large = message("TensorProto").FromString(tensor.SerializeToString())
    large.tensor_shape.dim[0].size = 1 << 40
    send = lambda tensor: dict(send_tensor=dict(op_id=2, tensors=[tensor], device_name=LOCAL))
    large.tensor_content = b"1234"
    tell("more elements than bytes", send(large))
    unknown = message("TensorProto").FromString(tensor.SerializeToString())
    unknown.dtype = 77
    tell("no such type", send(unknown))
    tell(
        "no tensor", dict(operation=dict(id=3, name="Identity", op_inputs=[dict()], device=LOCAL, attrs=dict(T=FLOAT)))
    )
    tell("no name", dict(operation=dict(id=3, device=LOCAL)))
    tell("no device", eager.op(3, "Neg", [(1, 0)], T=FLOAT, device=""))
    tell("a job only", eager.op(3, "Neg", [(1, 0)], T=FLOAT, device="/job:there"))
    tell("another kind", eager.op(3, "Neg", [(1, 0)], T=FLOAT, device="/job:there/replica:0/task:0/device:TPU:0"))
    tell("an unknown attribute", eager.op(3, "Neg", [(1, 0)], T=FLOAT, Nothing=dict(i=3)))
    tell("a type it does not take", eager.op(3, "Neg", ["text"], T=dict(type=7)))
    tell("a wrong number of inputs", eager.op(3, "Neg", [(1, 0), (1, 0)], T=FLOAT))
    tell("a list of another length", eager.op(3, "AddN", [(1, 0)], T=FLOAT, N=dict(i=2)))
    tell("negative output", eager.op(3, "Neg", [(1, -1)], T=FLOAT))
    many = dict(list=dict(type=[1] * 3))
    tell("many outputs", eager.op(4, "IdentityN", [(1, 0)] * 3, T=many))
    tell("the last of them", eager.op(-1, "Neg", [(4, 2)], T=FLOAT))
    tell("sent again", eager.send(4, [9.0]))
    tell("not replaced", eager.op(-1, "Identity", [(4, 0)], T=FLOAT))
    tell("on", eager.op(-1, "Neg", [(1, 0)], T=FLOAT))


def functions(eager):
    tell = lambda label, *items: show(label, brief(eager.enqueue(*items)))
    register = lambda definition, **fields: dict(register_function=dict(function_def=definition, **fields))
    call = lambda name, *inputs: eager.op(-1, name, inputs, function=True)
    tell("without nodes", register(function("empty") | dict(node_def=[])))
    tell("called", call("empty", [1.0]))
    broken = {
        "an unknown op": dict(node_def=[dict(name="n", op="NoSuchOp", input=["x"])]),
        "an unknown input": dict(node_def=[dict(name="n", op="Mul", input=["x", "y"], attr=dict(T=FLOAT))]),
        "another type": dict(node_def=[dict(name="n", op="Mul", input=["x", "x"], attr=dict(T=dict(type=3)))]),
        "a cycle": dict(node_def=[dict(name="n", op="Mul", input=["x", "n:z:0"], attr=dict(T=FLOAT))]),
        "no such result": dict(ret=dict(y="m:z:0")),
        "a result of another type": dict(ret=dict(y="n:z:3")),
    }
    for number, (label, change) in enumerate(broken.items()):
        name = f"broken_{number}"
        registered = brief(eager.enqueue(register(function(name) | change)))
        called = brief(eager.enqueue(call(name, [1.0])))
        show(
            label,
            "refused" if "INVALID_ARGUMENT" in (registered, called) or "NOT_FOUND" in (registered, called) else called,
        )
    itself = function("itself")
    itself["node_def"] = [dict(name="n", op="itself", input=["x"])]
    itself["ret"] = dict(y="n:y:0")
    tell("calls itself", register(itself))
    tell("a name of an op", register(function("Mul")))
    tell("not called so", eager.op(-1, "empty", [[1.0]]))
    tell("an op called so", eager.op(-1, "Neg", [(1, 0)], T=FLOAT, function=True))
    tell("a good one", register(function("fine")))
    tell("called, too", call("fine", [3.0]))


def components(eager):
    piece = dict(function_def=function("part"), is_component_function=True)
    show("without a library", brief(eager.enqueue(dict(register_function=piece))))
    operation = eager.op(50, "part", [(1, 0)], function=True)["operation"] | dict(is_component_function=True)

    def run(outputs=(0,), **fields):
        call = operation | dict(func_step_id=77) | fields
        return brief(eager("RunComponentFunction", context_id=CONTEXT, operation=call, output_num=outputs))

    show("another context", brief(eager("RunComponentFunction", context_id=1, operation=operation)))
    show(
        "an unknown value", run(op_inputs=[dict(remote_handle=dict(op_id=999, device=LOCAL, op_device=LOCAL, dtype=1))])
    )
    show("another device", run(device="/job:there/replica:0/task:0/device:CPU:5"))
    show("no operation", brief(eager("RunComponentFunction", context_id=CONTEXT)))
    show("fine", str(run()))


def packed(eager):
    handle = lambda op_id, **fields: dict(
        remote_handle=dict(op_id=op_id, device=LOCAL, op_device=LOCAL, dtype=1) | fields
    )
    tensor = lambda value: convert("TensorProto", tf.make_tensor_proto(value))
    local = lambda value, device=LOCAL: dict(local_handle=dict(tensor=tensor(value), device=device))
    send = lambda *handles: dict(
        send_packed_handle=dict(op_id=60, handles=handles, device_name="/job:there/device:COMPOSITE:0")
    )
    for label, handles in {
        "no values": [],
        "an unknown value": [handle(999)],
        "an unknown device": [local(1.0, "/job:nowhere/device:CPU:0")],
        "an unknown task": [handle(1, device="/job:no/device:CPU:0", op_device="/job:no/device:CPU:0")],
        "two values": [local([1.0]), handle(1)],
    }.items():
        show(label, brief(eager.enqueue(send(*handles))))


def floods(eager):
    for number in range(200):
        eager.create(context=10000 + number)
    show("contexts", brief(eager("KeepAlive", context_id=10199).context_view_id))
    for number in range(200):
        eager("CloseContext", context_id=10000 + number)
    show("closed", brief(eager("KeepAlive", context_id=10000)))
    for start in range(0, 20000, 1000):
        eager.enqueue(*(eager.send(100000 + start + number, 1.0) for number in range(1000)))
    show("values", brief(eager.enqueue(eager.op(-1, "Neg", [(119999, 0)], T=FLOAT))))
    show("and after them", brief(eager.enqueue(eager.op(-1, "Neg", [(1, 0)], T=FLOAT))))
