"""Give the event loop of a forked child its own epoll and its own wake-up sockets.

A child shares those of its parent. If it closed its copy of the loop, it would remove the wake-up
socket from the parent's epoll: threads could no longer wake up the parent, which would then wait
forever.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import socket
import sys
import weakref

_inherited: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


def is_inherited(loop: asyncio.AbstractEventLoop) -> bool:
    """Return True in a forked child if the sessions of this loop belong to its parent."""
    return loop in _inherited


def separate(loop: asyncio.AbstractEventLoop) -> None:
    """Separate a loop with sessions from that of the parent. Call it in a forked child.

    Loops without an epoll share nothing that this could change, or separate themselves.
    """
    _inherited.add(loop)
    selector: object = getattr(loop, "_selector", None)
    ends: list[object] = [getattr(loop, name, None) for name in ("_ssock", "_csock")]
    if sys.platform != "linux" or not isinstance(selector, selectors.EpollSelector):
        return
    if loop.is_closed():
        return
    for end, shared in zip(socket.socketpair(), ends, strict=True):
        if isinstance(shared, socket.socket):
            os.set_blocking(end.fileno(), False)
            os.dup2(end.fileno(), shared.fileno(), inheritable=False)
        end.close()
    with select.epoll() as own:
        for key in selector.get_map().values():
            wanted = (
                (select.EPOLLIN, selectors.EVENT_READ),
                (select.EPOLLOUT, selectors.EVENT_WRITE),
            )
            try:
                own.register(key.fd, sum(mask for mask, event in wanted if key.events & event))
            except OSError:  # closed after the fork
                continue
        os.dup2(own.fileno(), selector.fileno(), inheritable=False)
