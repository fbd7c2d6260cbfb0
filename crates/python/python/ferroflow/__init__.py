"""Ferroflow: TensorFlow's cluster runtime in Rust, inside a Python process.

`Server` takes the place of `tf.distribute.Server`; `python -m ferroflow trainer.py` puts it there in an unchanged
program. Nothing here needs TensorFlow, and numpy is imported only where arrays are.

Parts are loaded when they are first used: every Python that a switched program starts imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferroflow import errors
    from ferroflow._ferroflow import VERSION as __version__
    from ferroflow.cluster import ClusterSpec, LocalCluster, Role, local_cluster, resolve
    from ferroflow.demonstration import demo
    from ferroflow.errors import Error
    from ferroflow.files import (
        Checkpoint,
        Event,
        EventWriter,
        latest_checkpoint,
        read_events,
        read_graph,
        write_checkpoint,
        write_graph,
    )
    from ferroflow.server import Server, ServerDef
    from ferroflow.session import Session

__all__ = [
    "Checkpoint",
    "ClusterSpec",
    "Error",
    "Event",
    "EventWriter",
    "LocalCluster",
    "Role",
    "Server",
    "ServerDef",
    "Session",
    "__version__",
    "demo",
    "errors",
    "latest_checkpoint",
    "local_cluster",
    "read_events",
    "read_graph",
    "resolve",
    "write_checkpoint",
    "write_graph",
]

_MODULES = {
    "cluster": ("ClusterSpec", "LocalCluster", "Role", "local_cluster", "resolve"),
    "demonstration": ("demo",),
    "errors": ("Error",),
    "files": (
        "Checkpoint",
        "Event",
        "EventWriter",
        "latest_checkpoint",
        "read_events",
        "read_graph",
        "write_checkpoint",
        "write_graph",
    ),
    "server": ("Server", "ServerDef"),
    "session": ("Session",),
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("ferroflow.errors")
    if name == "__version__":
        return importlib.import_module("ferroflow._ferroflow").VERSION
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(importlib.import_module("ferroflow." + module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'ferroflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
