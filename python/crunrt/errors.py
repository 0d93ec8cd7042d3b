"""The exceptions of this package. Their text is that of crunrt_last_error(): one line that says
what was tried, on what, why it failed, and what to do."""
from __future__ import annotations

import errno

from ._library import library


class Error(RuntimeError):
    """A call of libcrunrt has failed. `errno` is the positive error number, e.g. errno.EINVAL."""

    def __init__(self, number: int, text: str):
        super().__init__(text)
        self.errno = number


class Timeout(Error, TimeoutError):  # type: ignore[misc]
    """The call was not done in time."""


class ConnectionLost(Error, ConnectionError):  # type: ignore[misc]
    """The store, the agent or a peer is gone, or the group was already broken."""


class RoundOver(ConnectionLost):
    """The round has ended because a worker failed. Call rejoin(), or end the process."""


_KINDS: dict[int, type[Error]] = {
    errno.ETIMEDOUT: Timeout, errno.ECONNRESET: ConnectionLost, errno.EPIPE: ConnectionLost,
    errno.ENOTCONN: ConnectionLost}


def check(result: int, kind: type[Error] | None = None) -> int:
    """Returns `result`, the value of a C function. If it is negative, raises the exception for it,
    or one of class `kind`."""
    if result >= 0:
        return result
    text = library().last_error().decode(errors="replace")
    raise (kind or _KINDS.get(-result, Error))(-result, text)


def milliseconds(seconds: float | None) -> int:
    """Returns the timeout for a C function; None means the default of the object."""
    from ._library import FOREVER, TIMEOUT_DEFAULT
    if seconds is None:
        return TIMEOUT_DEFAULT
    return FOREVER if seconds == float("inf") else max(0, round(seconds * 1000))
