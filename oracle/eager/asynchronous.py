"""Operations that nobody waits for: clients that run ahead, contexts that answer before an operation is done, and failures
that everything after them meets."""

from protocol import CONTEXT, FLOAT, Eager, function
from report import show

from program import run_program


def run(targets):
    contexts(Eager(targets[0]))
    run_program("asynchronous_program", targets, "streams")
    run_program("asynchronous_program", targets, "calls")


def contexts(eager):
    view = 0

    def create():
        nonlocal view
        view += 1
        return eager.create(view=view, **{"async": True})

    wait = lambda: str(eager("WaitQueueDone", context_id=CONTEXT))
    bad = lambda op_id: eager.op(op_id, "Assert", [False, "no"], T=dict(list=dict(type=[7])))
    add = lambda op_id, *inputs: eager.op(op_id, "AddV2", inputs or [1.0, 2.0], T=FLOAT)
    show("created", create())
    show("done", [eager.enqueue(eager.op(1, "NoOp")), wait()])
    show("an op", eager.enqueue(add(2)))
    show("its value", eager.enqueue(add(-1, (2, 0), 1.0)))
    show("released", [eager.enqueue(dict(handle_to_decref=dict(op_id=2))), wait()])
    show("released twice", eager.enqueue(dict(handle_to_decref=dict(op_id=2))))
    show("not found", eager.enqueue(add(3, (2, 0), 1.0)))
    show("of another type", eager.enqueue(add(3, 1.0, 2)))
    show("that harms nobody", [eager.enqueue(add(4)), wait()])
    show("fails later", eager.enqueue(bad(5)))
    show("and everything after it", [eager.enqueue(add(6)), eager.enqueue(add(-1)), wait(), wait()])
    show("values, too", eager.enqueue(eager.send(7, 1.0)))
    show("and calls", eager.enqueue(dict(register_function=dict(function_def=function("square")))))
    show("of functions", eager.enqueue(eager.op(8, "square", [1.0], function=True)))
    show("two at once", eager.enqueue(eager.op(9, "NoOp"), eager.op(10, "NoOp")))
    show("a new context", create())
    show("is free of it", [eager.enqueue(add(2)), wait()])
    show("fails at once", eager.enqueue(eager.op(3, "Reshape", [[1.0], [3]], T=FLOAT, Tshape=dict(type=3))))
    show("and after that", [eager.enqueue(add(4)), wait()])
    show("closed", str(eager("CloseContext", context_id=CONTEXT, context_view_id=view)))
