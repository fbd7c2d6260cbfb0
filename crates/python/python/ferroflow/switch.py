"""The switch: TensorFlow's `Server` replaced by Ferroflow's in programs that know nothing of it.

TensorFlow defines the class in one module, from which all its public names take it: `tf.distribute.Server`,
`tf.train.Server`, `tf.compat.v1.train.Server`. An import hook replaces the class when that module has run, before
any of the names exists. Sessions are changed the same way, so that they call a server of their process directly
(`direct.py`). This module imports nothing that is slow, because every Python of a switched program does.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Sequence

VARIABLE = "FERROFLOW"

# In TensorFlow 1.15 modules are known by both names.
PACKAGES = ("tensorflow", "tensorflow_core")
SERVERS = tuple(package + ".python.training.server_lib" for package in PACKAGES)
SESSIONS = tuple(package + ".python.client.session" for package in PACKAGES)

_installed = False


def mode() -> str:
    """Returns how the variable `FERROFLOW` sets the switch.

    Returns:
        `off`, `on` (every server is Ferroflow's, or an error) or `auto` (stock's where Ferroflow's cannot do what the
        program asks for).
    """
    value = os.environ.get(VARIABLE, "auto").strip().lower()
    if value in ("", "0", "off", "false", "no"):
        return "off"
    if value in ("1", "on", "true", "yes"):
        return "on"
    if value == "auto":
        return "auto"
    raise ValueError(f"{VARIABLE}={value} is not a setting; write 1, auto or 0")


def install() -> None:
    """Replaces the class now, if TensorFlow is loaded, or as soon as it is."""
    global _installed
    if _installed or mode() == "off":
        return
    _installed = True
    sys.meta_path.insert(0, _Finder())
    for name in SERVERS + SESSIONS:
        module = sys.modules.get(name)
        if module is not None and (hasattr(module, "Server") or hasattr(module, "BaseSession")):
            _change(module)


class _Finder:
    """Finds the modules as Python would, and has them changed once they have run."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in SERVERS + SESSIONS:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _run_then_change(spec.loader)
                return spec
        return None


def _run_then_change(loader: Any) -> None:
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        run(module)
        _change(module)

    loader.exec_module = exec_module


def _change(module: Any) -> None:
    if module.__name__ in SERVERS:
        _replace(module)
    else:
        from ferroflow.direct import install

        install(module)


def _forget(module: Any, name: str, value: Any) -> None:
    """Replaces the value that a module of TensorFlow 2 may have noted beside its dictionary."""
    if hasattr(type(module), "_fastdict_insert"):
        module._fastdict_insert(name, value)


def _replace(server_lib: Any) -> None:
    """Replaces the class in its module, and in every module that has taken it from there."""
    from ferroflow.stand_in import make_class

    stock = server_lib.Server
    if getattr(stock, "replaces_stock", False):
        return
    ours = make_class(server_lib, mode() == "auto")
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict):
            for name, value in list(names.items()):
                if value is stock:
                    names[name] = ours
                    _forget(module, name, ours)
    server_lib.Server = ours
