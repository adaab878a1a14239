"""Remember on this machine that an approved call has begun, for a conversation without a store.

The CLI runs a call that waits each time it resumes the conversation, until the transcript has its
result. With a store, the journal tells that the call was cut off and may have run. Without one, an
empty file of this user does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from hashlib import sha256

from bridle._records.session_store import Entry
from bridle.approvals import PendingApproval
from bridle.errors import CallMayHaveRun, StoreError
from bridle.sessions._outbox.spool import state_directory

_FIX = (
    "Find out what the call has done. Then finish the turn with Deny(reason), which the model "
    "reads. With a store, agent.recover does this."
)


class BegunCall:
    """The file of one approved call. It takes the place of the journal in a store."""

    def __init__(self, pending: PendingApproval) -> None:
        name = sha256(f"{pending.session_id} {pending.tool_use_id}".encode()).hexdigest()[:32]
        self._pending = pending
        self._path = os.path.join(state_directory(), "approved", name)
        #: True once the CLI has reported a result of the call, so that it does not wait any more.
        self.has_result = False
        #: True once this object has created the file. Otherwise it is that of another session.
        self.is_own = False

    def refuse(self) -> None:
        """Check that the call has not begun to run.

        Raises:
            CallMayHaveRun: it has begun in a process that died.
        """
        if os.path.exists(self._path):
            raise CallMayHaveRun(self._pending.tool_name, self._pending.tool_use_id, _FIX)

    def hurry(self) -> None:
        """Do nothing: there is no store to append to."""

    async def write(self, entry: Entry) -> None:
        """Create the file if the entry says that the call is about to run.

        Raises:
            StoreError: the file cannot be created, so the call must not run.
        """
        if entry.get("tool_use_id") == self._pending.tool_use_id:
            self.is_own = True
            try:
                await asyncio.get_running_loop().run_in_executor(None, self._create)
            except OSError as error:
                reason = f"{self._path}: {error.strerror}"
                raise StoreError("BegunCall", "write", reason) from error

    def put(self, entry: Entry) -> None:
        """Note a result of the call. The other entries are for a journal."""
        if entry.get("tool_use_id") == self._pending.tool_use_id:
            self.has_result = True

    def _create(self) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def forget(self) -> None:
        """Remove the file: the call waits again, or its turn has ended."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
