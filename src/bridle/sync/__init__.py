"""Blocking versions of ``run``, ``query`` and sessions, for code without ``async``.

Use them in scripts, notebooks, task queues and web frameworks, from any thread, also from a thread
with a running event loop. One background thread with an event loop does the work for the whole
process. Bridle starts it at the first call. The names are those of ``bridle``, with these
differences:

=====================  ====================
``bridle``             ``bridle.sync``
=====================  ====================
``await call()``       ``call()``
``async for``          ``for``
``async with``         ``with``
``aclose()``           ``close()``, or ``aclose()``
``await turn``         ``turn.outcome()``
=====================  ====================

``bridle.sync.sessions`` has the functions of ``bridle.sessions``.

Blocking: a call blocks only the thread that makes it.

Threads: any thread may call any method at any time. Use an iterator in one thread only.

Callbacks: a plain function runs in its own thread and may call every function of this module, such
as ``session.interrupt()``, or ``context.session.interrupt()`` in a tool. An ``async def`` function
runs on the shared event loop and must not block; blocking functions of this module raise
``UsageError`` there. Both see the context variables of the code that sent the prompt.

Ctrl-C: ``KeyboardInterrupt``, or another exception of a signal handler, ends a blocking call at
once. A start or a ``run`` is stopped, an operation is cancelled, and a turn is interrupted. The
session stays usable, and the end of ``with`` shuts it down.

Forks: a child process has its own event loop. In the child, sessions of the parent are stopped.
The parent's sessions are not affected.

Exit: when the interpreter exits, it stops all sessions that are still open.
"""

from __future__ import annotations

from bridle.sync import _sessions_twin as sessions
from bridle.sync._functions_twin import query, run, start_session
from bridle.sync._iterators import QueryStream, Subscription, TextPieces, TurnEvents
from bridle.sync._operations_twin import (
    ContextOperations,
    ConversationOperations,
    FileOperations,
    InfoOperations,
    McpOperations,
    ModelOperations,
    PluginOperations,
    SettingsOperations,
    TaskOperations,
)
from bridle.sync._session_twin import Session, Turn

__all__ = [
    "ContextOperations",
    "ConversationOperations",
    "FileOperations",
    "InfoOperations",
    "McpOperations",
    "ModelOperations",
    "PluginOperations",
    "QueryStream",
    "Session",
    "SettingsOperations",
    "Subscription",
    "TaskOperations",
    "TextPieces",
    "Turn",
    "TurnEvents",
    "query",
    "run",
    "sessions",
    "start_session",
]
