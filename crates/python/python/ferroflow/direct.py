"""Steps of TensorFlow's client that call the server of their own process without a connection.

TensorFlow's client knows no address but that of a network socket, and opens, extends and closes its sessions over one. Its
class of sessions is Python, though, down to the method that runs a step with arrays; in switched programs that method
calls the server itself, in the session that the client has opened. What it cannot do (partial runs, metadata, types that
numpy lacks) goes over the loopback interface as before, in the same session.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any, Sequence

from ferroflow import _ferroflow, arrays
from ferroflow.errors import Error

# With 0, all steps go over the loopback interface.
VARIABLE = "FERROFLOW_DIRECT"

# Types whose arrays are the same in every version of TensorFlow.
_TYPES = frozenset(
    ["float16", "float32", "float64", "complex64", "complex128", "bool", "string"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)

# Servers of this process by their targets. Like stock's, they serve until the process ends.
_servers: dict[str, _ferroflow.Server] = {}

_numbers = itertools.count()


class _Opening(threading.local):
    """The session that this thread opens."""

    name: str | None = None


_opening = _Opening()


def register(server: _ferroflow.Server) -> None:
    """Lets sessions on a server's target call it directly."""
    if os.environ.get(VARIABLE, "1").strip() != "0":
        _servers[server.target] = server


class Route:
    """The way from a session of TensorFlow's client to its server in this process."""

    def __init__(self, server: _ferroflow.Server, name: str, errors: Any) -> None:
        """Describes a session that its client may not have opened yet.

        Args:
            server: The server.
            name: The session's name in its configuration.
            errors: TensorFlow's module of exceptions.
        """
        self._server = server
        self._name = name
        self._errors = errors
        self._session: _ferroflow.ClientSession | None = None

    def is_open(self) -> bool:
        """Whether the server has the session."""
        if self._session is None:
            try:
                self._session = _ferroflow.find_session(self._server, self._name)
            except Error:
                # A server that has stopped, or of another process.
                return False
        return self._session is not None

    def run(
        self, targets: Sequence[Any], fetches: Sequence[Any], feeds: Sequence[tuple[Any, Any]], options: bytes
    ) -> list[Any]:
        """Runs a step; raises TensorFlow's exceptions."""
        assert self._session is not None
        try:
            given = [(tensor.name, _given(tensor, value)) for tensor, value in feeds]
            names = [tensor.name for tensor in fetches]
            values = self._session.run(given, names, [operation.name for operation in targets], options)
        except Error as error:
            kind = self._errors.exception_type_from_error_code(error.code)
            raise kind(None, None, error.message) from None
        return [_owned(arrays.to_numpy(value)) for value in values]


def _can_be_named(config: Any) -> bool:
    """Whether a `ConfigProto` has room for a name, which old versions of TensorFlow do not know."""
    experimental: Any = getattr(config, "experimental", None)
    return hasattr(experimental, "session_metadata") and not experimental.HasField("session_metadata")


def _is_plain(tensor: Any) -> bool:
    return tensor.dtype.base_dtype.name in _TYPES


def _given(tensor: Any, value: Any) -> arrays.GivenTensor:
    dtype: str = tensor.dtype.base_dtype.name
    if dtype == "string":
        return arrays.to_tensor(value, dtype)
    return dtype, list(value.shape), value.tobytes()


def _owned(value: Any) -> Any:
    """An array that the program may write to, as those of stock are."""
    flags = getattr(value, "flags", None)
    return value.copy() if flags is not None and not flags.writeable and value.ndim > 0 else value


def install(session_module: Any) -> None:
    """Changes TensorFlow's class of sessions, given the module that defines it."""
    base, tf_session = session_module.BaseSession, session_module.tf_session
    if hasattr(base, "_ferroflow_route"):
        return
    base._ferroflow_route = None
    stock_init, stock_run, stock_options = base.__init__, base._do_run, tf_session.TF_NewSessionOptions

    def TF_NewSessionOptions(target: Any = None, config: Any = None) -> Any:
        """Names the session, so that it is found at its server."""
        text = target.decode() if isinstance(target, bytes) else target
        if text in _servers and _can_be_named(config):
            named = type(config)()
            named.CopyFrom(config)
            _opening.name = f"direct-{os.getpid()}-{next(_numbers)}"
            named.experimental.session_metadata.name = _opening.name
            config = named
        return stock_options(target=target, config=config)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _opening.name = None
        stock_init(self, *args, **kwargs)
        if _opening.name is not None:
            self._ferroflow_route = Route(_servers[self._target.decode()], _opening.name, session_module.errors)
            # The client's own bound of a call; options of a step go before it.
            limit = max(self._config.operation_timeout_in_ms, 0)
            self._ferroflow_limit = session_module.config_pb2.RunOptions(timeout_in_ms=limit).SerializeToString()

    def _do_run(
        self: Any, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, options: Any, run_metadata: Any
    ) -> Any:
        route = self._ferroflow_route
        if route is not None and handle is None and run_metadata is None:
            feeds = [(key.deref() if hasattr(key, "deref") else key, value) for key, value in feed_dict.items()]
            if all(map(_is_plain, fetch_list)) and all(_is_plain(tensor) for tensor, _ in feeds):

                def run() -> Any:
                    self._extend_graph()
                    if not route.is_open():
                        return None
                    encoded = b"" if options is None else bytes(tf_session.TF_GetBuffer(options))
                    return route.run(target_list, fetch_list, feeds, self._ferroflow_limit + encoded)

                values = self._do_call(run)
                if values is not None:
                    return values
        return stock_run(self, handle, target_list, fetch_list, feed_dict, options, run_metadata)

    tf_session.TF_NewSessionOptions = TF_NewSessionOptions
    base.__init__ = __init__
    base._do_run = _do_run
