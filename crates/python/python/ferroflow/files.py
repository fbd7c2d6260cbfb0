"""Checkpoints, event files and graphs as dictionaries, lists and bytes, without a session."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Any, Iterator, Mapping, Union

from ferroflow import _ferroflow, arrays
from ferroflow.errors import NotFoundError

Path = Union[str, "os.PathLike[str]"]


class Checkpoint(Mapping[str, Any]):
    """The tensors of a checkpoint by their names. Each is read when it is looked up."""

    def __init__(self, path: Path) -> None:
        """Opens a checkpoint.

        Args:
            path: The prefix of its files, or a directory, whose latest checkpoint is opened.
        """
        prefix = os.fspath(path)
        if os.path.isdir(prefix):
            latest = latest_checkpoint(prefix)
            if latest is None:
                raise NotFoundError(f"the directory {prefix} has no checkpoint")
            prefix = latest
        self.prefix = prefix
        self._reader = _ferroflow.CheckpointReader(prefix)
        self._names = self._reader.names()

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return arrays.to_numpy(self._reader.read(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The type and the shape of a tensor, without reading it."""
        dtype, shape = self._reader.describe(name)
        return dtype, tuple(shape)

    def __repr__(self) -> str:
        return f"<Checkpoint {self.prefix} with {len(self)} tensors>"


def write_checkpoint(prefix: Path, tensors: Mapping[str, Any]) -> None:
    """Writes a checkpoint that TensorFlow's savers and `Checkpoint` read.

    Args:
        prefix: The prefix of its files, such as `model/step-100`.
        tensors: Arrays, or whatever numpy makes an array of, by name.
    """
    given = [(name, arrays.to_tensor(value)) for name, value in tensors.items()]
    _ferroflow.write_checkpoint(os.fspath(prefix), given)


def latest_checkpoint(directory: Path) -> str | None:
    """Returns the prefix of the latest checkpoint of a directory, as its file `checkpoint` says."""
    return _ferroflow.latest_checkpoint(os.fspath(directory))


class Event:
    """The summaries of one step.

    Attributes:
        wall_time: Seconds since 1970.
        step: The step.
        values: Numbers and arrays by their tags; images and sounds are the bytes of their files.
    """

    def __init__(self, wall_time: float, step: int, values: dict[str, Any]) -> None:
        self.wall_time = wall_time
        self.step = step
        self.values = values

    def __repr__(self) -> str:
        return f"Event(step={self.step}, values={self.values!r})"


def read_events(path: Path) -> list[Event]:
    """Reads the summaries of an event file, in the order in which they were written."""

    def plain(value: Any) -> Any:
        return arrays.to_numpy(value) if isinstance(value, _ferroflow.TensorMemory) else value

    events = _ferroflow.read_events(os.fspath(path))
    return [Event(time, step, {tag: plain(value) for tag, value in values}) for time, step, values in events]


class EventWriter:
    """A writer of an event file, which TensorBoard and `read_events` read.

    ```python
    with ferroflow.EventWriter("logs") as writer:
        writer.write(step, {"loss": 0.5})
    ```

    Attributes:
        path: The path of the file.
    """

    def __init__(self, directory: Path, suffix: str = "") -> None:
        """Creates an event file.

        Args:
            directory: The directory of the file, which is created if it is missing.
            suffix: The end of the file's name.
        """
        self._writer = _ferroflow.EventWriter(os.fspath(directory), suffix)
        self.path = self._writer.path

    def write(self, step: int, values: Mapping[str, Any], wall_time: float | None = None) -> None:
        """Writes the summaries of one step.

        Args:
            step: The step.
            values: Numbers, arrays and strings by their tags. A number is a scalar of TensorBoard's, and everything
                else a tensor.
            wall_time: Seconds since 1970; now by default.
        """
        now = time.time() if wall_time is None else wall_time
        self._writer.write(step, now, [(tag, _summary(value)) for tag, value in values.items()])

    def flush(self) -> None:
        """Writes out what is buffered. Events also reach the file every two minutes, or after ten of them."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _summary(value: Any) -> float | arrays.GivenTensor:
    if isinstance(value, (bool, int, float)):
        return float(value)
    given = arrays.to_tensor(value)
    # Scalars of numpy are numbers, too.
    return given if given[1] or given[0] == "string" else float(value)


def read_graph(source: bytes | Path) -> bytes:
    """Reads the graph of a `GraphDef` or `MetaGraphDef`, binary or text.

    Args:
        source: The message, or the path of its file.

    Returns:
        A binary `GraphDef`.
    """
    return _ferroflow.read_graph(_content(source))


def write_graph(graph: bytes | Path, path: Path, as_text: bool = True) -> None:
    """Writes a graph to a file, as `tf.io.write_graph` does.

    Args:
        graph: A `GraphDef` or `MetaGraphDef`, binary or text, or the path of its file.
        path: The file to write.
        as_text: Whether to write text.
    """
    content = _content(graph)
    written = _ferroflow.graph_to_text(content).encode() if as_text else _ferroflow.read_graph(content)
    with open(path, "wb") as file:
        file.write(written)


def _content(source: bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read()
