"""Clusters: which tasks there are, which one this process is, and small ones inside this process."""

from __future__ import annotations

import html
import json
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Mapping

from ferroflow import _ferroflow
from ferroflow.errors import InvalidArgumentError

if TYPE_CHECKING:
    from ferroflow import notebook
    from ferroflow.server import Server


class ClusterSpec:
    """The tasks of a cluster and their addresses, with the interface of `tf.train.ClusterSpec`."""

    def __init__(self, cluster: Any) -> None:
        """Creates a cluster.

        Args:
            cluster: A dictionary of jobs, each with a list of addresses or a dictionary of them by task number; or
                another `ClusterSpec`, of TensorFlow too; or a `ClusterDef` message.
        """
        self._jobs: dict[str, dict[int, str]] = {}
        for job, tasks in _jobs_of(cluster).items():
            if isinstance(tasks, (list, tuple)):
                numbered = dict(enumerate(tasks))
            elif isinstance(tasks, dict):
                numbered = {int(task): address for task, address in tasks.items()}
            else:
                raise TypeError(
                    f"the tasks of job {job!r} are a {type(tasks).__name__}; expected a list of addresses, or a "
                    "dictionary of them by task number"
                )
            for task, address in numbered.items():
                if not isinstance(address, str):
                    raise TypeError(
                        f"the address of task {task} of job {job!r} is a {type(address).__name__}; expected a string"
                    )
            self._jobs[str(job)] = dict(sorted(numbered.items()))

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """The number of tasks of a job."""
        return len(self.job_tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The numbers of the tasks of a job, in order."""
        return list(self.job_tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task."""
        tasks = self.job_tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"the job {job_name} has no task {task_index}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> dict[int, str]:
        """The addresses of a job, by task number."""
        if job_name not in self._jobs:
            raise ValueError(f"the cluster has no job {job_name}; its jobs are {', '.join(self._jobs) or 'none'}")
        return dict(self._jobs[job_name])

    def as_dict(self) -> dict[str, Any]:
        """The cluster as a dictionary: lists of addresses, or dictionaries where task numbers have gaps."""
        dense = {job: list(tasks) == list(range(len(tasks))) for job, tasks in self._jobs.items()}
        return {job: list(tasks.values()) if dense[job] else dict(tasks) for job, tasks in self._jobs.items()}

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ClusterSpec({self.as_dict()!r})"


def _jobs_of(cluster: Any) -> Mapping[str, Any]:
    if isinstance(cluster, Mapping):
        return cluster
    if hasattr(cluster, "as_dict"):
        jobs = cluster.as_dict()
        if isinstance(jobs, Mapping):
            return jobs
    if hasattr(cluster, "job") and hasattr(cluster, "SerializeToString"):
        return {job.name: dict(job.tasks) for job in cluster.job}
    raise TypeError(f"the cluster is a {type(cluster).__name__}; expected a dictionary, a ClusterSpec or a ClusterDef")


class Role:
    """The task of a process, and the source that says so.

    Attributes:
        job_name: The job.
        task_index: The number of the task in its job.
        is_chief: Whether this task initializes the model and writes checkpoints.
        address: The task's own address, if the cluster is known.
        source: The source: `TF_CONFIG`, a launcher. None if no source says anything.
        cluster: The cluster; empty for a program that runs alone.
        notes: Remarks about how the role was found.
        overridden: Other sources that named a role, and the role.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self.job_name: str = described["job_name"]
        self.task_index: int = described["task_index"]
        self.is_chief: bool = described["is_chief"]
        self.address: str | None = described["address"]
        self.source: str | None = described["source"]
        self.cluster = ClusterSpec(described["cluster"] or {})
        self.notes: list[str] = described["notes"]
        self.overridden: list[tuple[str, str]] = [(other["source"], other["said"]) for other in described["overridden"]]

    def __repr__(self) -> str:
        return f"Role({self.job_name}:{self.task_index}, source={self.source!r}, cluster={self.cluster.as_dict()!r})"


def resolve(environment: Mapping[str, str] | None = None, jobs: str | None = None) -> Role:
    """Finds the task of this process, as `ferroflow resolve` does: by `TF_CONFIG`, Slurm, MPI and other launchers.

    Args:
        environment: Variables to read instead of those of the process.
        jobs: The jobs of the cluster where a launcher only numbers its processes, such as `ps:1,worker:*`.

    Raises:
        ferroflow.errors.InvalidArgumentError: If the source that decides is malformed.
    """
    variables = os.environ if environment is None else environment
    return Role(json.loads(_ferroflow.resolve(list(variables.items()), jobs)))


class LocalCluster:
    """Servers of this process that make up a cluster; a context manager that stops them at its end.

    Attributes:
        cluster: The tasks and their addresses.
        servers: The servers by job, in the order of tasks.
    """

    def __init__(self, ps: int, workers: int, chief: bool = False) -> None:
        from ferroflow.server import Server

        counts = {"ps": ps, "chief": int(chief), "worker": workers}
        for job, count in counts.items():
            if count < 0:
                raise InvalidArgumentError(f"a cluster cannot have {count} tasks of job {job}")
        if sum(counts.values()) == 0:
            raise InvalidArgumentError("a cluster needs at least one task; ask for ps or workers")
        ports = iter(_free_ports(sum(counts.values())))
        jobs = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in counts.items() if count}
        self.cluster = ClusterSpec(jobs)
        self.servers: dict[str, list[Server]] = {}
        self._table: notebook.LiveTable | None = None
        try:
            for job, addresses in jobs.items():
                for task in range(len(addresses)):
                    self.servers.setdefault(job, []).append(Server(self.cluster, job, task))
        except BaseException:
            self.stop()
            raise

    @property
    def targets(self) -> list[str]:
        """The targets of the workers, or of all tasks if there are none."""
        servers = self.servers.get("worker") or [server for job in self.servers.values() for server in job]
        return [server.target for server in servers]

    @property
    def target(self) -> str:
        """The target of the first worker."""
        return self.targets[0]

    def tf_config(self, job_name: str, task_index: int = 0) -> str:
        """The `TF_CONFIG` of a task, for a program that is started beside."""
        task = {"type": job_name, "index": task_index}
        return json.dumps({"cluster": self.cluster.as_dict(), "task": task})

    def stop(self) -> None:
        """Stops all servers."""
        for server in [server for job in self.servers.values() for server in job]:
            server.stop()
        self.servers.clear()

    def __enter__(self) -> LocalCluster:
        from ferroflow import notebook

        self._table = notebook.show(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            if self._table is not None:
                self._table.end()

    def _tasks(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for job in self.cluster.jobs:
            servers = self.servers.get(job, [])
            for task, address in self.cluster.job_tasks(job).items():
                rows.append((f"{job}:{task}", address, *_shown(servers[task] if task < len(servers) else None)))
        return rows

    def __repr__(self) -> str:
        return "\n".join("{:<12}{:<22}{:<10}{:>8}{:>12}{:>10}".format(*row) for row in [_HEADINGS, *self._tasks()])

    def _repr_html_(self) -> str:
        headings = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._tasks()
        )
        return f"<table><tr>{headings}</tr>{rows}</table>"


_HEADINGS = ("task", "address", "state", "sessions", "steps", "tensors")


def _shown(server: Server | None) -> tuple[str, str, str, str]:
    """The state of a server, and the counts of its work."""
    work = server.activity if server is not None else None
    if work is None:
        return ("stopped", "", "", "")
    state = "busy" if work.running else "serving"
    return (state, str(work.sessions), f"{work.steps:,}", f"{work.tensor_bytes / 1e6:.1f} MB")


def _free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket() for _ in range(count)]
    try:
        for held in sockets:
            # So that a server can listen while the port is still held, as it does.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
        return [held.getsockname()[1] for held in sockets]
    finally:
        for held in sockets:
            held.close()


def local_cluster(ps: int = 1, workers: int = 1, chief: bool = False) -> LocalCluster:
    """Brings up a cluster of servers inside this process.

    In a notebook, the context manager shows a table of the tasks that follows their work.

    ```python
    with ferroflow.local_cluster(ps=2, workers=3) as cluster:
        with tf.compat.v1.Session(cluster.target) as session:
            ...
    ```

    Args:
        ps: The number of parameter servers.
        workers: The number of workers.
        chief: Whether to add a chief.
    """
    return LocalCluster(ps, workers, chief)
