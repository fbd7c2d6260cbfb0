"""Calls of the coordination service without a client in between: tasks that wait for each other, those that do not come,
and what the others hear of them."""

import threading

from protocol import CONTEXT, Eager
from report import show
from wire import message

LEADER = "/job:there/replica:0/task:0"
TASKS = [dict(job_name="there", task_id=number) for number in range(2)]


def run(targets):
    eager = Eager(targets[0])
    call = Service(eager)
    show("not turned on", call("Barrier", barrier_id="a", source_task=TASKS[0])[0])
    config = dict(
        service_type="standalone",
        service_leader=LEADER,
        coordinated_job_list=[dict(name="there", num_tasks=2)],
        # One of the tasks is made up, and nobody tells that it lives.
        heartbeat_timeout_in_ms=600_000,
    )
    cluster = dict(job=[dict(name="there", tasks={0: eager.address, 1: targets[1].removeprefix("grpc://")})])
    server = dict(job_name="there", task_index=0, protocol="grpc", cluster=cluster)
    server["default_session_config"] = dict(experimental=dict(coordination_config=config))
    created = eager("CreateContext", server_def=server, keep_alive_secs=600, context_id=CONTEXT)
    show("turned on", not isinstance(created, tuple))
    show("registered", done(call("RegisterTask", incarnation=7, source_task=TASKS[1])))
    states(call)
    barriers(call)
    eager("CloseContext", context_id=CONTEXT)


class Service:
    """The coordination service of a task."""

    def __init__(self, eager):
        self.caller = eager.caller

    def __call__(self, method, **fields):
        request = message(f"{method}Request")(**fields)
        answer = self.caller.raw(f"/tensorflow.CoordinationService/{method}", request.SerializeToString())
        return message(f"{method}Response").FromString(answer) if isinstance(answer, bytes) else answer


def done(answer):
    """The code of a failure."""
    return answer[0] if isinstance(answer, tuple) else "OK"


class Waiting(threading.Thread):
    """A call that may not be answered at once."""

    def __init__(self, call, method, **fields):
        super().__init__(daemon=True)
        self.answer, self.call = None, lambda: call(method, **fields)
        self.start()

    def run(self):
        self.answer = self.call()

    def waits(self):
        self.join(0.5)
        return self.is_alive()

    def get(self):
        self.join(20)
        return "no answer" if self.is_alive() else self.answer


def told(answer):
    """States of tasks as others hear of them."""
    state = lambda info: [info.task.task_id, info.state, info.incarnation, info.error_code, info.error_message]
    return [answer.version_number, sorted(state(info) for info in answer.task_state)]


def living(answer):
    """Tasks that live, and their incarnations."""
    if isinstance(answer, tuple):
        return done(answer)
    return sorted(zip([task.task_id for task in answer.alive_tasks], answer.incarnations))


def states(call):
    watch = lambda version, job="there": Waiting(call, "WatchJobState", job_name=job, version_number=version)
    alive = lambda task, tasks=TASKS: Waiting(call, "GetAliveTasks", requesting_task=TASKS[task], tasks=tasks)

    def devices(task, name):
        told = dict(device=[dict(type_url="type.googleapis.com/tensorflow.DeviceAttributes", value=name)])
        return Waiting(call, "WaitForAllTasks", source_task=TASKS[task], device_info=told)

    show("states", [told(watch(version).get()) for version in (-1, 0, 1)])
    show("of no job", told(watch(-1, "nobody").get()))
    watching = [watch(2), watch(2)]
    show("the only one asks", living(alive(0, TASKS[:1]).get()))
    show("asks for others", [living(alive(0, TASKS[1:]).get()), living(alive(0, []).get())])
    first = alive(0)
    show("one of them asks", first.waits())
    show("both ask", [living(alive(1).get()), living(first.get())])
    first = devices(1, b"one")
    show("devices of one", first.waits())
    second = devices(0, b"zero")
    show("devices of both", [sorted(each.value for each in one.get().device_info.device) for one in (first, second)])
    show("nothing happens", [each.waits() for each in watching])
    pending = alive(0)
    show("they wait for one", pending.waits())
    show("it fails", done(call("ReportErrorToService", error_code=13, error_message="broken", error_origin=TASKS[1])))
    show("it is not waited for", living(pending.get()))
    show("it is told", [told(each.get()) for each in watching])
    show("reset", done(call("ResetTask", source_task=TASKS[1])))
    show("it is there no more", told(watch(3).get()))
    show("registered again", done(call("RegisterTask", incarnation=9, source_task=TASKS[1])))
    show("it is another", told(watch(4).get()))


def barriers(call):
    def come(task, name, counter=0, seconds=20, **fields):
        request = dict(barrier_id=name, barrier_timeout_in_ms=seconds * 1000, counter=counter, source_task=TASKS[task])
        return call("Barrier", **request, **fields)

    def both(*arguments, **fields):
        answers = [None, None]

        def one(task):
            answers[task] = done(come(task, *arguments, **fields))

        threads = [threading.Thread(target=one, args=[task]) for task in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    show("both come", both("a"))
    show("they came already", done(come(0, "a")))
    show("again", both("a", 1))
    show("the wrong number", done(come(0, "a", 5)))
    show("one does not come", done(come(0, "b", seconds=1)))
    show("one is enough", done(come(1, "c", tasks=[TASKS[1]])))
    show("not one of those", done(come(0, "d", tasks=[TASKS[1]])))
    show("others than before", [done(come(1, "e", tasks=[TASKS[1]])), done(come(1, "e", 1, tasks=TASKS))])
    show("a stranger", done(come(0, "f", tasks=[TASKS[0], dict(job_name="nobody", task_id=0)])))
    show("cancelled too late", done(call("CancelBarrier", barrier_id="a", counter=1, source_task=TASKS[0])))
    show("polled for errors", done(call("PollForError", source_task=TASKS[1])))
    show("fails", done(call("ReportErrorToService", error_code=13, error_message="broken", error_origin=TASKS[1])))
    show("nobody waits for one that failed", done(come(0, "g")))
    show("reset", done(call("ResetTask", source_task=TASKS[1])))
