"""Lock single bytes of a file. The kernel releases the locks when the process dies.

On Linux a lock belongs to the open file. Elsewhere it is a POSIX lock, which belongs to the process
and ends as soon as any code of the process, such as a tool that reads all files, closes the file.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from errno import EINVAL

_SET_LOCK: int = getattr(fcntl, "F_OFD_SETLK", 37)
"""Python lacks the name if it was compiled with old headers. The number is that of Linux."""

_KINDS = {
    fcntl.LOCK_EX: fcntl.F_WRLCK,
    fcntl.LOCK_SH: fcntl.F_RDLCK,
    fcntl.LOCK_UN: fcntl.F_UNLCK,
}


def lock_byte(descriptor: int, position: int, kind: int) -> bool:
    """Lock or unlock a byte. Return False if another open file or process has a lock on it.

    A forked child shares the lock, so the caller has the child close the descriptor
    (`os.register_at_fork`).

    Args:
        descriptor: the file, open for reading and writing.
        position: the byte. It need not exist.
        kind: ``LOCK_EX``, ``LOCK_SH`` or ``LOCK_UN`` of `fcntl`.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        if sys.platform != "linux" or not _lock_of_file(descriptor, position, kind):
            how = kind if kind == fcntl.LOCK_UN else kind | fcntl.LOCK_NB
            fcntl.lockf(descriptor, how, 1, position)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock_of_file(descriptor: int, position: int, kind: int) -> bool:
    """Change the lock of an open file. Return False if the system has no such locks."""
    lock = struct.pack("hhqqi4x", _KINDS[kind], os.SEEK_SET, position, 1, 0)  # struct flock
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, lock)
    except OSError as error:
        if error.errno != EINVAL:
            raise
        return False
    return True
