"""Calls of the eager service without a client in between: contexts, handles, functions, and every way to get them
wrong."""

import re

from report import show
from wire import Caller, convert, message

import tensorflow as tf

CONTEXT = 0x7FEE
LOCAL = "/job:there/replica:0/task:0/device:CPU:0"


def run(targets):
    eager = Eager(targets[0])
    contexts(eager)
    eager.create()
    operations(eager)
    handles(eager)
    functions(eager)
    components(eager)
    show("closed", eager("CloseContext", context_id=CONTEXT))
    show("closed again", eager("CloseContext", context_id=CONTEXT))


class Eager:
    """The eager service of one server."""

    def __init__(self, target):
        self.caller, self.address = Caller(target), target.removeprefix("grpc://")

    def __call__(self, method, **fields):
        request = message(f"eager.{method}Request")(**fields)
        answer = self.caller.raw(f"/tensorflow.eager.EagerService/{method}", request.SerializeToString())
        if isinstance(answer, bytes):
            return message(f"eager.{method}Response").FromString(answer)
        code, text, payloads = answer
        # The name of the machine, and where in its source a server of stock found fault.
        text = re.sub(r"running on [^ ]+\.", "running on HOST.", text)
        return code, text.split("\n")[0].split(" Previous definition")[0], payloads

    def create(self, context=CONTEXT, view=0, **fields):
        server = dict(job_name="there", task_index=0, protocol="grpc")
        server["cluster"] = dict(job=[dict(name="there", tasks={0: self.address})])
        answer = self(
            "CreateContext", server_def=server, keep_alive_secs=600, context_id=context, context_view_id=view, **fields
        )
        if isinstance(answer, tuple):
            return answer
        return [(each.name, each.device_type) for each in answer.device_attributes]

    def enqueue(self, *items, context=CONTEXT):
        answer = self("Enqueue", context_id=context, queue=items)
        if isinstance(answer, tuple):
            return answer
        return [outcome(response) for response in answer.queue_response]

    def send(self, op_id, value, device=LOCAL):
        tensor = convert("TensorProto", tf.make_tensor_proto(value))
        return dict(send_tensor=dict(op_id=op_id, tensors=[tensor], device_name=device))

    def op(self, op_id, name, inputs=(), device=LOCAL, function=False, **attrs):
        operation = dict(id=op_id, name=name, op_inputs=[as_input(each) for each in inputs], device=device)
        return dict(operation=dict(attrs=attrs, is_function=function, **operation))


def as_input(value):
    if isinstance(value, dict):
        return dict(remote_handle=value)
    if isinstance(value, tuple):
        op_id, output = value
        return dict(remote_handle=dict(op_id=op_id, output_num=output, device=LOCAL, op_device=LOCAL, dtype=1))
    return dict(tensor=convert("TensorProto", tf.make_tensor_proto(value)))


def outcome(response):
    shapes = [[dim.size for dim in shape.dim] for shape in response.shape]
    tensors = [(tensor.dtype, bytes(tensor.tensor_content) or tensor.float_val[:]) for tensor in response.tensor]
    return shapes, tensors, list(response.device)


def contexts(eager):
    show("unknown context", eager.enqueue())
    show("keep an unknown one", eager("KeepAlive", context_id=CONTEXT))
    show("wait in an unknown one", eager("WaitQueueDone", context_id=CONTEXT))
    show("update an unknown one", eager("UpdateContext", context_id=CONTEXT, context_view_id=1))
    show("close an unknown one", eager("CloseContext", context_id=CONTEXT))
    show("created", eager.create(view=3))
    show("view", eager("KeepAlive", context_id=CONTEXT).context_view_id)
    show("created with an older view", eager.create(view=2))
    show("created again", eager.create(view=4))
    show("updated", str(eager("UpdateContext", context_id=CONTEXT, context_view_id=5)))
    show("updated too far", eager("UpdateContext", context_id=CONTEXT, context_view_id=7))
    show("closed with an older view", eager("CloseContext", context_id=CONTEXT, context_view_id=4))
    show("still there", eager("KeepAlive", context_id=CONTEXT).context_view_id)
    show("waited", str(eager("WaitQueueDone", context_id=CONTEXT)))
    show("waited for an op", eager("WaitQueueDone", context_id=CONTEXT, op_id=[1]))
    show("closed", str(eager("CloseContext", context_id=CONTEXT, context_view_id=5)))
    show("gone", eager("KeepAlive", context_id=CONTEXT))
    eager.create(context=1)
    show("others go", eager.create(clear_existing_contexts=True))
    show("gone, too", eager("KeepAlive", context_id=1))
    eager("CloseContext", context_id=CONTEXT)


FLOAT = dict(type=1)


def operations(eager):
    show("nothing", eager.enqueue())
    show("an empty item", eager.enqueue(dict()))
    add = lambda op_id, *inputs, **fields: eager.op(op_id, "AddV2", inputs, T=FLOAT, **fields)
    show("sent", eager.enqueue(eager.send(1, [1.0, 2.0])))
    show("an op", eager.enqueue(add(2, (1, 0), (1, 0))))
    show("inline tensors", eager.enqueue(add(3, (2, 0), [5.0, 5.0])))
    show("tensors back", eager.enqueue(add(-1, (3, 0), 1.0)))
    show("several", eager.enqueue(add(4, (3, 0), (3, 0)), add(-1, (4, 0), (1, 0))))
    show("defaults", eager.enqueue(eager.op(-1, "MatMul", [[[1.0]], [[2.0]]], T=FLOAT)))
    show("unknown op", eager.enqueue(eager.op(5, "NoSuchOp")))
    show("unknown function", eager.enqueue(eager.op(5, "no_such_function", function=True)))
    show("unknown device", eager.enqueue(add(5, (1, 0), (1, 0), device="/job:there/replica:0/task:0/device:CPU:9")))
    show("malformed device", eager.enqueue(add(5, (1, 0), (1, 0), device="nowhere")))
    show("unknown handle", eager.enqueue(add(5, (77, 0), (1, 0))))
    show("unknown output", eager.enqueue(add(5, (1, 3), (1, 0))))
    elsewhere = dict(
        op_id=1,
        device="/job:nowhere/replica:0/task:0/device:CPU:0",
        op_device="/job:nowhere/replica:0/task:0/device:CPU:0",
        dtype=1,
    )
    show("unknown task", eager.enqueue(add(5, elsewhere, (1, 0))))
    show("too few inputs", eager.enqueue(add(5, (1, 0))))
    show("shapes that do not fit", eager.enqueue(add(5, (1, 0), [1.0, 2.0, 3.0])))
    show("first fails", eager.enqueue(eager.send(6, 1.0), add(7, (77, 0), (1, 0)), eager.send(8, 1.0)))
    show("before it", eager.enqueue(add(-1, (6, 0), 1.0)))
    show("after it", eager.enqueue(add(-1, (8, 0), 1.0)))
    show("no outputs", eager.enqueue(eager.op(9, "NoOp")))


def handles(eager):
    def decref(op_id, output=0):
        return dict(handle_to_decref=dict(op_id=op_id, output_num=output))

    show("released", eager.enqueue(decref(2)))
    show("released twice", eager.enqueue(decref(2)))
    show("used after that", eager.enqueue(eager.op(-1, "AddV2", [(2, 0), (2, 0)], T=FLOAT)))
    show("never there", eager.enqueue(decref(1234, 5)))
    show("sent to an unknown device", eager.enqueue(eager.send(10, 1.0, "/job:there/replica:0/task:0/device:GPU:0")))


def function(name, op="Mul"):
    """A function of one argument, which is combined with itself."""
    signature = dict(name=name, input_arg=[dict(name="x", type=1)], output_arg=[dict(name="y", type=1)])
    node = dict(name="n", op=op, input=["x", "x"], attr=dict(T=FLOAT))
    return dict(signature=signature, node_def=[node], ret=dict(y="n:z:0"))


def functions(eager):
    register = lambda definition, **fields: dict(register_function=dict(function_def=definition, **fields))
    show("registered", eager.enqueue(register(function("square"))))
    show("registered again", eager.enqueue(register(function("square"))))
    show("another of that name", eager.enqueue(register(function("square", "AddV2"))))
    call = lambda name, *inputs, **fields: eager.op(20, name, inputs, function=True, **fields)
    show("called", eager.enqueue(call("square", (1, 0))))
    show("its result", eager.enqueue(eager.op(-1, "Identity", [(20, 0)], T=FLOAT)))
    show("wrong argument", eager.enqueue(eager.op(21, "square", [[1, 2]], function=True)))
    show("too many arguments", eager.enqueue(eager.op(22, "square", [(1, 0), (1, 0)], function=True)))
    show("removed", eager.enqueue(dict(remove_function=dict(function_name="square"))))
    show("removed again", eager.enqueue(dict(remove_function=dict(function_name="square"))))
    show("removed once too often", eager.enqueue(dict(remove_function=dict(function_name="square"))))
    show("called after that", eager.enqueue(eager.op(23, "square", [(1, 0)], function=True)))
    show("cleaned up", eager.enqueue(dict(cleanup_function=dict(step_id=99))))


def components(eager):
    library = dict(function=[function("inner")])
    piece = dict(function_def=function("piece"), is_component_function=True, library=library)
    show("a component", eager.enqueue(dict(register_function=piece)))
    operation = eager.op(30, "piece", [(1, 0)], function=True)["operation"]

    def run(outputs=(), **fields):
        answer = eager("RunComponentFunction", context_id=CONTEXT, operation=operation | fields, output_num=outputs)
        return answer if isinstance(answer, tuple) else outcome_of_component(answer)

    show("not marked", run())
    show("not a function", run(is_function=False, is_component_function=True))
    show("run", run([4], is_component_function=True, func_step_id=5))
    show("its result", eager.enqueue(eager.op(-1, "Identity", [(30, 4)], T=FLOAT)))
    show("back", run([0], id=-1, is_component_function=True, func_step_id=6))
    show("unknown", run(name="nothing", is_component_function=True, func_step_id=7))


def outcome_of_component(answer):
    return [[dim.size for dim in shape.dim] for shape in answer.shape], [
        list(tensor.float_val) or tensor.tensor_content for tensor in answer.tensor
    ]
