"""The journal of a session: write the tool results, and give tool calls their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridle._engine import actions as act
from bridle._session.parts.part import Part, Sees
from bridle._session.parts.store_part import StorePart
from bridle.sessions._journal_writer import SessionJournal

if TYPE_CHECKING:
    from bridle._session.actor import Actor


class JournalPart(Part):
    """Writes the journal of a session.

    Args:
        journal: the journal.
        stored: the store that takes the entries. None if the store has no journals.
    """

    def __init__(self, journal: SessionJournal, stored: StorePart | None) -> None:
        self._journal = journal
        self._stored = stored

    def join(self, actor: Actor) -> None:
        """Connect the journal with the engine and the store."""
        stored = self._stored
        self._journal.connect(actor.engine, None if stored is None else stored.session.journal)

    def sees(self) -> Sees:
        """See the results of tool calls, and calls of tools of the program."""
        return {
            act.Call: self._called,
            act.CancelCall: self._journal.note_cancelled,
            act.Deliver: self._journal.note_results,
        }

    def _called(self, action: act.Call) -> None:
        if action.kind is act.CallKind.TOOL:
            self._journal.bind_key(action)
