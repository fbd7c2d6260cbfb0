"""The class that stands in for `tf.distribute.Server` in switched programs."""

from __future__ import annotations

import glob
import os
import sys
from typing import Any

from ferroflow import _ferroflow, direct
from ferroflow.errors import Error, UnimplementedError


def make_class(server_lib: Any, may_fall_back: bool) -> Any:
    """Makes a subclass of stock's `Server` that runs Ferroflow's.

    Args:
        server_lib: TensorFlow's module `server_lib`.
        may_fall_back: Whether a server that Ferroflow cannot be is stock's.
    """
    stock: Any = server_lib.Server

    class Server(stock):  # type: ignore[misc]
        __doc__ = stock.__doc__
        replaces_stock = True

        def __init__(
            self,
            server_or_cluster_def: Any,
            job_name: str | None = None,
            task_index: int | None = None,
            protocol: str | None = None,
            config: Any = None,
            start: bool = True,
        ) -> None:
            self._ferroflow = None
            definition = server_lib._make_server_def(server_or_cluster_def, job_name, task_index, protocol, config)
            obstacle = _obstacle(definition) if may_fall_back else None
            if obstacle is None:
                try:
                    self._ferroflow = _ferroflow.Server(definition.SerializeToString())
                except UnimplementedError as error:
                    if not may_fall_back:
                        raise _as_stocks(server_lib, error) from None
                    obstacle = error.message
                except Error as error:
                    raise _as_stocks(server_lib, error) from None
            if obstacle is not None:
                print(f"ferroflow: this server is stock TensorFlow's: {obstacle}", file=sys.stderr, flush=True)
                super().__init__(definition, start=start)
                return
            self._server_def = definition
            if start:
                self.start()

        def __del__(self) -> None:
            # Ferroflow's serves on, like stock's, of which only the wrapper is freed.
            if getattr(self, "_ferroflow", None) is None and hasattr(self, "_server"):
                super().__del__()

        def start(self) -> None:
            if self._ferroflow is None:
                super().start()
                return
            try:
                self._ferroflow.start()
                direct.register(self._ferroflow)
            except Error as error:
                raise _as_stocks(server_lib, error) from None

        def join(self) -> None:
            if self._ferroflow is None:
                super().join()
                return
            try:
                self._ferroflow.join()
            except Error as error:
                raise _as_stocks(server_lib, error) from None

        @property
        def server_def(self) -> Any:
            return self._server_def

        @property
        def target(self) -> Any:
            if self._ferroflow is None:
                return super().target
            return self._ferroflow.target

    Server.__qualname__ = stock.__qualname__
    Server.__module__ = stock.__module__
    return Server


def _obstacle(definition: Any) -> str | None:
    """Returns why a server has to be stock's, as far as that can be known before it starts."""
    if definition.protocol not in ("", "grpc"):
        return f"the program asks for the protocol {definition.protocol}; Ferroflow's servers speak grpc"
    counts = definition.default_session_config.device_count
    if counts.get("GPU", 1) > 0 and _has_gpu():
        return "this machine has a GPU, which Ferroflow's servers do not use; CUDA_VISIBLE_DEVICES=-1 hides it"
    return None


def _has_gpu() -> bool:
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1") or not glob.glob("/dev/nvidia[0-9]*"):
        return False
    test = sys.modules.get("tensorflow.python.platform.test") or sys.modules.get("tensorflow_core.python.platform.test")
    is_built_with_cuda = getattr(test, "is_built_with_cuda", None)
    return bool(is_built_with_cuda()) if is_built_with_cuda is not None else True


def _as_stocks(server_lib: Any, error: Error) -> Exception:
    """Makes the exception that stock raises for the same code."""
    kind = server_lib.errors.exception_type_from_error_code(error.code)
    made: Exception = kind(None, None, error.message)
    return made
