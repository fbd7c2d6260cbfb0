"""Exceptions: one class for each of TensorFlow's status codes, with the names that `tf.errors` has."""

from __future__ import annotations


class Error(Exception):
    """A failure with a status code.

    Attributes:
        code: The number of the status code, as gRPC and TensorFlow count them.
        message: The sentence that says what went wrong.
    """

    code: int = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CancelledError(Error):
    """The step or call was cancelled."""

    code = 1


class UnknownError(Error):
    """No other code applies, as for a port that is in use."""

    code = 2


class InvalidArgumentError(Error):
    """The graph, the feed or the definition is wrong."""

    code = 3


class DeadlineExceededError(Error):
    """The deadline passed before the call completed."""

    code = 4


class NotFoundError(Error):
    """A name or a file does not exist."""

    code = 5


class AlreadyExistsError(Error):
    """A name exists already."""

    code = 6


class PermissionDeniedError(Error):
    """The caller may not do this."""

    code = 7


class ResourceExhaustedError(Error):
    """Memory, a quota or a table is full."""

    code = 8


class FailedPreconditionError(Error):
    """The state does not allow it: an uninitialized variable, a server that has stopped."""

    code = 9


class AbortedError(Error):
    """The peer restarted, or the session is gone; open another one."""

    code = 10


class OutOfRangeError(Error):
    """The end of the input, or an index beyond it."""

    code = 11


class UnimplementedError(Error):
    """Not supported."""

    code = 12


class InternalError(Error):
    """A bug in Ferroflow."""

    code = 13


class UnavailableError(Error):
    """The peer cannot be reached; try again."""

    code = 14


class DataLossError(Error):
    """A file is corrupt."""

    code = 15


class UnauthenticatedError(Error):
    """The caller has not proved its identity."""

    code = 16


_CLASSES: dict[int, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def from_code(code: int, message: str) -> Error:
    """Makes the exception of a status code."""
    return _CLASSES.get(code, UnknownError)(message)
