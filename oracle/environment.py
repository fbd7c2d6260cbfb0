"""The environment in which stock TensorFlow answers: the same on every machine.

Stock chooses kernels by the CPU's features and reads dozens of variables that a machine may happen to have. Importing
this module before TensorFlow settles them for this process and for those that it starts. `cargo xtask tidy` fails for a
script that imports TensorFlow first.
"""

import gc
import importlib.util
import locale
import os
import sys

# What stock is told.
_FIXED = {
    # oneDNN is on where the CPU has AVX-512 VNNI or the like. Its kernels round differently, and some end the process
    # where others refuse a shape.
    "TF_ENABLE_ONEDNN_OPTS": "0",
    # A machine with a GPU places nodes there.
    "CUDA_VISIBLE_DEVICES": "",
    # What external tools print is read by scripts.
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    # Python's own files and pipes are UTF-8.
    "PYTHONUTF8": "1",
}
# What is quiet unless somebody wants to hear it.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "GRPC_VERBOSITY": "NONE"}
# What a machine may have set for other programs: flags of XLA, numbers of threads, allocators, deterministic ops, proxies
# that a connection to another port of this machine would take.
_DROPPED = ("TF_", "XLA_", "GRPC_", "OMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "LANGUAGE")
_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy")
# A task's role and what logs and traces are asked for.
_KEPT = ("TF_CONFIG", "TF_CPP_", "GRPC_VERBOSITY", "GRPC_TRACE")


def _settle():
    if "tensorflow" in sys.modules:
        raise ImportError("`environment` was imported after TensorFlow, which has read its variables by then")
    for name in list(os.environ):
        if (name.startswith(_DROPPED) and not name.startswith(_KEPT)) or name.lower() in _PROXIES:
            del os.environ[name]
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    os.environ.update(_FIXED)
    if not sys.flags.utf8_mode and locale.getencoding().lower() not in ("utf-8", "utf8"):
        # Files would be read in the encoding of the locale, which only a new start of Python can change. Nothing has
        # happened yet: this module comes first.
        os.execv(sys.executable, sys.orig_argv)


class _WithoutCollections:
    """Finds TensorFlow and imports it without looking for garbage: a fifth of the time went into that.

    The million objects that an import leaves are not looked at later, either.
    """

    @staticmethod
    def find_spec(name, path, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(_WithoutCollections)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            gc.disable()
            try:
                execute(module)
            finally:
                gc.freeze()
                gc.enable()

        spec.loader.exec_module = exec_module
        return spec


_settle()
sys.meta_path.insert(0, _WithoutCollections)
