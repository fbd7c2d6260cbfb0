"""Single ops whose inputs other tasks keep, in every form that a request can name them."""

from protocol import CONTEXT, FLOAT, Eager
from report import show

FLOAT_TYPE, STRING_TYPE = 1, 7


def run(targets):
    first, second = tasks = [Eager(target) for target in targets[:2]]
    devices = open_contexts(tasks)
    values(first, second, devices)
    for task in tasks:
        task("CloseContext", context_id=CONTEXT)


def open_contexts(tasks):
    """Opens a context on both tasks of one cluster; returns their devices."""
    names = [f"/job:there/replica:0/task:{number}/device:CPU:0" for number in range(len(tasks))]
    attributes = []
    for task, name in zip(tasks, names):
        found = task.caller("GetStatus", service="Worker").device_attributes
        (device,) = [each for each in found if each.device_type == "CPU"]
        device.name = name
        attributes.append(device)
    cluster = dict(job=[dict(name="there", tasks={number: task.address for number, task in enumerate(tasks)})])
    for number, task in enumerate(tasks):
        server = dict(job_name="there", task_index=number, protocol="grpc", cluster=cluster)
        task(
            "CreateContext",
            server_def=server,
            keep_alive_secs=600,
            context_id=CONTEXT,
            cluster_device_attributes=attributes,
        )
    return names


def handle(op_id, device, dtype=FLOAT_TYPE, output=0, op_device=None, **fields):
    op_device = device if op_device is None else op_device
    return dict(op_id=op_id, output_num=output, device=device, op_device=op_device, dtype=dtype, **fields)


def values(first, second, devices):
    here, there = devices
    show("kept there", second.enqueue(second.send(1, [1.0, 2.0], there), second.send(2, ["a", "bc"], there)))
    show("kept here", first.enqueue(first.send(3, [10.0, 20.0], here)))
    add = lambda *inputs, number=-1: first.enqueue(first.op(number, "AddV2", inputs, T=FLOAT, device=here))
    show("one of another task", add(handle(1, there), handle(3, here)))
    show("the same twice", add(handle(1, there), handle(1, there)))
    show("beside an inline one", add([5.0, 5.0], handle(1, there)))
    show("without the device of its op", add(handle(1, there, op_device=""), handle(3, here)))
    show("without its device", add(handle(1, "", op_device=there), handle(3, here)))
    show("and kept", add(handle(1, there), handle(3, here), number=4))
    show("what was kept", add(handle(4, here), [0.0, 0.0]))
    length = first.op(-1, "StringLength", [handle(2, there, STRING_TYPE)], device=here)
    show("text", first.enqueue(length))
    show("not there", add(handle(77, there), handle(3, here))[0])
    show("no such output", add(handle(1, there, output=3), handle(3, here))[0])
    show("another type than it says", add(handle(2, there), handle(3, here))[0])
    show("on the other task", second.enqueue(second.op(-1, "Neg", [handle(3, here)], T=FLOAT, device=there)))
