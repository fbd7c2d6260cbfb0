"""Variables of one context, call by call: anonymous and named ones, without a value, changed while somebody holds a value
that was read, and let go of."""

from protocol import CONTEXT, FLOAT, LOCAL, Eager, function
from report import show

ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"


def run(targets):
    eager = Eager(targets[0])
    eager.create()
    calls = Variables(eager)
    anonymous(calls)
    named(calls)
    without_value(calls)
    values_that_were_read(calls)
    mistakes(calls)
    eager("CloseContext", context_id=CONTEXT)


class Variables:
    """Operations on variables, by the numbers of the operations that made their handles."""

    def __init__(self, eager):
        self.eager, self.next = eager, 100

    def run(self, name, *inputs, keep=False, **attrs):
        self.next += keep
        operation = self.eager.op(self.next if keep else -1, name, inputs, **attrs)
        answer = self.eager.enqueue(operation)
        return self.next if keep and isinstance(answer, list) else answer

    def make(self, name=ANONYMOUS, shape=(2,), dtype=1, **attrs):
        dims = dict(shape=dict(dim=[dict(size=size) for size in shape]))
        return self.run("VarHandleOp", keep=True, dtype=dict(type=dtype), shape=dims, shared_name=dict(s=name), **attrs)

    def assign(self, variable, value, dtype=1, name="AssignVariableOp", **attrs):
        return self.run(name, handle(variable), value, dtype=dict(type=dtype), **attrs)

    def read(self, variable, dtype=1, **options):
        return self.run("ReadVariableOp", handle(variable), dtype=dict(type=dtype), **options)

    def release(self, variable):
        return self.eager.enqueue(dict(handle_to_decref=dict(op_id=variable)))


def handle(op_id, dtype=20):
    return dict(op_id=op_id, output_num=0, device=LOCAL, op_device=LOCAL, dtype=dtype)


def anonymous(calls):
    first, second = calls.make(), calls.make()
    show("assigned", [calls.assign(first, [1.0, 2.0]), calls.assign(second, [3.0, 4.0])])
    show("two of them", [calls.read(first), calls.read(second)])
    copy = calls.run("Identity", handle(first), keep=True, T=dict(type=20))
    show("released", calls.release(first))
    show("by its other handle", calls.read(copy))
    show("its first handle", calls.read(first))
    show("released, too", calls.release(copy))
    show("the other", calls.read(second))
    show("destroyed", calls.run("DestroyResourceOp", handle(second)))
    show("after that", calls.read(second)[0])
    show("destroyed twice", calls.run("DestroyResourceOp", handle(second), ignore_lookup_error=dict(b=True)))


def named(calls):
    first, second = calls.make(b"shared"), calls.make(b"shared")
    show("assigned", calls.assign(first, [5.0, 6.0]))
    show("by another handle", calls.read(second))
    show("released", calls.release(first))
    show("kept", calls.read(second))
    show("released, too", calls.release(second))
    third = calls.make(b"shared")
    show("found again", calls.read(third))
    show("in another container", calls.run("VarIsInitializedOp", handle(calls.make(b"shared", container=dict(s=b"c")))))
    show("destroyed", calls.run("DestroyResourceOp", handle(third)))
    show("is initialized", calls.run("VarIsInitializedOp", handle(third)))
    show("made again", [calls.assign(third, [7.0, 8.0]), calls.read(third)])


def without_value(calls):
    variable = calls.make()
    show("initialized", calls.run("VarIsInitializedOp", handle(variable)))
    show("assigned", calls.assign(variable, [1.0, 2.0]))
    show("initialized", calls.run("VarIsInitializedOp", handle(variable)))
    show("shape", calls.run("VariableShape", handle(variable), out_type=dict(type=3)))
    show("another shape", calls.assign(variable, [1.0, 2.0, 3.0]))
    show("checked shape", calls.assign(variable, [1.0, 2.0, 3.0], validate_shape=dict(b=True)))
    show("another type", calls.assign(variable, [1, 2], dtype=3))
    show("read as another type", calls.read(variable, dtype=3))
    show("after all", calls.read(variable))


def values_that_were_read(calls):
    variable = calls.make()
    calls.assign(variable, [1.0, 2.0])
    before = calls.read(variable, keep=True)
    show("added", calls.assign(variable, [10.0, 10.0], name="AssignAddVariableOp"))
    value = lambda op_id: calls.run("Identity", (op_id, 0), T=FLOAT)
    show("before and after", [value(before), calls.read(variable)])
    middle = calls.read(variable, keep=True)
    scatter = dict(dtype=dict(type=1), Tindices=dict(type=3))
    show("scattered", calls.run("ResourceScatterUpdate", handle(variable), [0], [0.5], **scatter))
    show("before, middle, after", [value(before), value(middle), calls.read(variable)])
    show("disabled", calls.run("DisableCopyOnRead", handle(variable)))
    late = calls.read(variable, keep=True)
    show("subtracted", calls.assign(variable, [1.0, 1.0], name="AssignSubVariableOp"))
    show("scattered again", calls.run("ResourceScatterAdd", handle(variable), [1, 1], [1.0, 2.0], **scatter))
    show("all of them", [value(before), value(middle), value(late), calls.read(variable)])
    taken = calls.run("Identity", (late, 0), keep=True, T=FLOAT)
    descent = dict(T=FLOAT)
    show("descended", calls.run("ResourceApplyGradientDescent", handle(variable), 0.5, [2.0, 2.0], **descent))
    show("assigned from a value", calls.run("AssignVariableOp", handle(variable), (taken, 0), dtype=FLOAT))
    show("added again", calls.assign(variable, [1.0, 1.0], name="AssignAddVariableOp"))
    show("at the end", [value(taken), value(late), calls.read(variable)])


def mistakes(calls):
    variable = calls.make()
    calls.assign(variable, [1.0, 2.0])
    show("not a handle", calls.run("ReadVariableOp", [1.0], dtype=FLOAT))
    show("shape of an update", calls.assign(variable, [1.0], name="AssignAddVariableOp"))
    show("out of range", calls.run("ResourceGather", handle(variable), [7], dtype=FLOAT, Tindices=dict(type=3)))
    body = function("doubles")
    body["signature"]["input_arg"] = [dict(name="x", type=20)]
    body["node_def"] = [
        dict(name="read", op="ReadVariableOp", input=["x"], attr=dict(dtype=FLOAT)),
        dict(name="n", op="AddV2", input=["read:value:0", "read:value:0"], attr=dict(T=FLOAT)),
    ]
    show("registered", calls.eager.enqueue(dict(register_function=dict(function_def=body))))
    call = calls.eager.op(-1, "doubles", [handle(variable)], function=True)
    show("in a function", calls.eager.enqueue(call))
