"""Sessions that run a graph with numpy arrays, without TensorFlow."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any, Iterable, Mapping

from ferroflow import _ferroflow, arrays
from ferroflow.errors import FailedPreconditionError
from ferroflow.server import Server


class Session:
    """A session on a server that runs steps of a graph from a file.

    ```python
    with ferroflow.Session("grpc://localhost:2222", graph="model.pb") as session:
        y = session.run("y:0", {"x:0": [[1.0, 2.0]]})
    ```
    """

    def __init__(
        self,
        target: str | Server = "",
        graph: bytes | str | os.PathLike[str] = b"",
        device_filters: Iterable[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Opens a session.

        Args:
            target: `grpc://host:port`, or a server of this process, which is called without a socket. Without one the
                session runs in this process and has variables of its own.
            graph: A `GraphDef` or `MetaGraphDef`, binary or text: its bytes, or the path of a file.
            device_filters: The devices that the session sees, such as `/job:ps`.
            timeout: The seconds to wait for the tasks of the cluster; two minutes by default.

        Raises:
            ferroflow.Error: If the graph cannot be read, or a task cannot be reached.
        """
        if isinstance(graph, bytes):
            encoded = graph
        else:
            with open(graph, "rb") as file:
                encoded = file.read()
        place = target._server if isinstance(target, Server) else target
        self._closed = False
        self._session = _ferroflow.Session(place, encoded, list(device_filters), timeout)

    def run(self, fetches: Any, feed_dict: Mapping[str, Any] | None = None, timeout: float | None = None) -> Any:
        """Runs a step.

        Args:
            fetches: The name of an output (`"loss:0"`), whose value is returned, or of an operation (`"train"`), for
                which None is; or a list, a tuple or a dictionary of such, in any depth.
            feed_dict: Values by the names of outputs that they take the place of.
            timeout: The seconds after which the step fails with `DeadlineExceededError`.

        Returns:
            Arrays in the structure of `fetches`.
        """
        if self._closed:
            raise FailedPreconditionError("the session is closed; open another one")
        feeds: list[tuple[str, Any]] = []
        for name, value in (feed_dict or {}).items():
            dtype, _ = self._session.describe(name)
            feeds.append((name, arrays.to_tensor(value, dtype)))
        names: dict[str, int] = {}
        targets: list[str] = []
        _collect(fetches, names, targets)
        on_main_thread = threading.current_thread() is threading.main_thread()
        values = self._session.run(feeds, list(names), targets, on_main_thread, timeout)
        return _arranged(fetches, names, [arrays.to_numpy(value) for value in values])

    def operations(self) -> list[str]:
        """The names of the graph's operations."""
        return self._session.operations()

    def close(self) -> None:
        """Closes the session; steps that run are cancelled."""
        if not self._closed:
            self._closed = True
            self._session.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _collect(fetches: Any, names: dict[str, int], targets: list[str]) -> None:
    if isinstance(fetches, str):
        if ":" in fetches:
            names.setdefault(fetches, len(names))
        elif fetches not in targets:
            targets.append(fetches)
    elif isinstance(fetches, (list, tuple)):
        for part in fetches:
            _collect(part, names, targets)
    elif isinstance(fetches, Mapping):
        for part in fetches.values():
            _collect(part, names, targets)
    else:
        raise TypeError(
            f"a fetch is a {type(fetches).__name__}; expected the name of an output or an operation, or a list, tuple or "
            "dictionary of names"
        )


def _arranged(fetches: Any, names: dict[str, int], values: list[Any]) -> Any:
    if isinstance(fetches, str):
        return values[names[fetches]] if ":" in fetches else None
    if isinstance(fetches, Mapping):
        return {key: _arranged(part, names, values) for key, part in fetches.items()}
    parts = [_arranged(part, names, values) for part in fetches]
    return tuple(parts) if isinstance(fetches, tuple) else parts
