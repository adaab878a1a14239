"""Write the journal of a session: what it is about to do, before it does it."""

from __future__ import annotations

from bridle._shell.store_writer import StoreWriter
from bridle._store import Entry, SessionKey

WAIT = 5.0
"""Seconds that an entry waits for the store. Then it goes to the spool file."""


class Journal:
    """The journal of one session, under the subkey ``journal`` of its store."""

    def __init__(self, writer: StoreWriter, key: SessionKey) -> None:
        self._writer = writer
        self._key = key

    async def write(self, entry: Entry) -> None:
        """Write an entry, which must have a ``uuid``, and wait until it is kept.

        Wait up to five seconds for the store. Then, or at once while the store is known to fail,
        write the entry to a local spool file. The first time this happens, the session warns
        (``store_failed``). The store gets the entries of the file when it works again.

        Raises:
            StoreError: the spool file could not be written either.
        """
        await self._writer.write(self._key, entry, WAIT)
