"""Servers with the interface of `tf.distribute.Server`."""

from __future__ import annotations

from typing import Any, NamedTuple

from ferroflow import _ferroflow
from ferroflow.cluster import ClusterSpec


class ServerDef:
    """The definition of a server, for programs without TensorFlow's messages."""

    def __init__(
        self, cluster: ClusterSpec, job_name: str, task_index: int, protocol: str = "grpc", config: bytes = b""
    ) -> None:
        self.cluster = cluster
        self.job_name = job_name
        self.task_index = task_index
        self.protocol = protocol
        self.config = config

    def SerializeToString(self) -> bytes:
        """Encodes the definition as TensorFlow's message of the same name."""
        jobs = [(job, self.cluster.job_tasks(job)) for job in self.cluster.jobs]
        return _ferroflow.make_server_def(jobs, self.job_name, self.task_index, self.protocol, self.config)

    def __repr__(self) -> str:
        return f"ServerDef(job_name={self.job_name!r}, task_index={self.task_index}, cluster={self.cluster!r})"


class Activity(NamedTuple):
    """The work of a server."""

    #: Sessions that are open, and contexts of programs with a coordinator.
    sessions: int
    #: Steps since the server started.
    steps: int
    #: Steps under way.
    running: int
    #: Bytes that tensors hold.
    tensor_bytes: int


class Server:
    """One task of a cluster, served by threads of this process.

    The arguments are those of `tf.distribute.Server`. A server serves until the process ends.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: Any = None,
        start: bool = True,
    ) -> None:
        """Creates a server.

        Args:
            server_or_cluster_def: A cluster, as a dictionary, a `ClusterSpec` of Ferroflow or TensorFlow, or a
                `ClusterDef` message; or a whole `ServerDef`.
            job_name: The job of this task. May be left out if the cluster has one job.
            task_index: The number of this task in its job. May be left out if the job has one task.
            protocol: `"grpc"`.
            config: A `ConfigProto` message, or its bytes: the default of the sessions of this server.
            start: Whether to serve at once.

        Raises:
            ValueError: If `job_name` or `task_index` is needed.
            TypeError: If an argument has a wrong type.
            ferroflow.Error: If the cluster does not have the task, or its port cannot be used.
        """
        self._server_def = _definition(server_or_cluster_def, job_name, task_index, protocol, config)
        self._server = _ferroflow.Server(self._server_def.SerializeToString())
        if start:
            self.start()

    def start(self) -> None:
        """Starts to serve. A server that serves already goes on."""
        self._server.start()

    def join(self) -> None:
        """Blocks until the server is stopped; Ctrl-C ends the wait."""
        self._server.join()

    def stop(self, timeout: float = 10.0) -> bool:
        """Stops the server. Its sessions are closed, and steps that run fail with `UnavailableError`.

        Returns:
            Whether its threads have ended within the timeout, in seconds.
        """
        return self._server.stop(timeout)

    @property
    def target(self) -> str:
        """The target that sessions are opened on, as `grpc://host:port`."""
        return self._server.target

    @property
    def server_def(self) -> Any:
        """The definition: the message that the server was made of, or a `ServerDef` of this module."""
        return self._server_def

    @property
    def activity(self) -> Activity | None:
        """The server's work so far, or None if it does not serve."""
        told = self._server.activity()
        return None if told is None else Activity(*told)

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> Server:
        """Creates a cluster of one task, `/job:localhost/task:0`, on a free port."""
        return Server({"localhost": ["localhost:0"]}, protocol="grpc", config=config, start=start)

    def __repr__(self) -> str:
        return f"<ferroflow.Server at {self.target}>"


def _encoded_config(config: Any) -> bytes:
    if config is None:
        return b""
    if isinstance(config, bytes):
        return config
    if hasattr(config, "SerializeToString"):
        return bytes(config.SerializeToString())
    raise TypeError(f"config is a {type(config).__name__}; expected a ConfigProto or its bytes")


def _definition(given: Any, job_name: Any, task_index: Any, protocol: Any, config: Any) -> Any:
    if isinstance(given, ServerDef) or type(given).__name__ == "ServerDef":
        return _changed(given, job_name, task_index, protocol, config)
    cluster = ClusterSpec(given)
    if job_name is None:
        if len(cluster.jobs) != 1:
            raise ValueError(f"job_name is needed: the cluster has the jobs {', '.join(cluster.jobs) or 'none'}")
        job_name = cluster.jobs[0]
    if task_index is None:
        tasks = cluster.job_tasks(job_name) if job_name in cluster.jobs else {}
        if len(tasks) != 1:
            raise ValueError(f"task_index is needed: the job {job_name} has {len(tasks)} tasks")
        task_index = next(iter(tasks))
    return ServerDef(cluster, job_name, int(task_index), protocol or "grpc", _encoded_config(config))


def _changed(given: Any, job_name: Any, task_index: Any, protocol: Any, config: Any) -> Any:
    if isinstance(given, ServerDef):
        return ServerDef(
            given.cluster,
            given.job_name if job_name is None else job_name,
            given.task_index if task_index is None else int(task_index),
            given.protocol if protocol is None else protocol,
            given.config + _encoded_config(config),
        )
    message = type(given)()
    message.CopyFrom(given)
    changes: dict[str, str | int | None] = dict(job_name=job_name, task_index=task_index, protocol=protocol)
    for field, value in changes.items():
        if value is not None:
            setattr(message, field, value)
    if config is not None:
        message.default_session_config.MergeFromString(_encoded_config(config))
    return message
