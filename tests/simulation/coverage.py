"""How often everything happened, so that a run can tell what it has not shown."""

from __future__ import annotations

from collections import Counter

from bridle._engine import session_state
from bridle._engine.state import MOVES, Cause, Lifecycle, transition


class Coverage:
    """How often what happened, over all seeds of a run."""

    def __init__(self) -> None:
        self.seeds = 0
        self.steps = 0
        self.moves: Counter[tuple[Lifecycle, Cause]] = Counter(dict.fromkeys(MOVES, 0))
        self.actions: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.readers: Counter[str] = Counter()

    TABLES = (
        "moves",
        "actions",
        "faults",
        "operations",
        "reasons",
        "warnings",
        "verdicts",
        "readers",
    )

    def add(self, other: Coverage) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        for name in self.TABLES:
            getattr(self, name).update(getattr(other, name))

    def watch_moves(self) -> None:
        """Count the moves of every engine from now on, here alone."""

        def observed(state: Lifecycle, cause: Cause) -> Lifecycle:
            self.moves[state, cause] += 1
            return transition(state, cause)

        session_state.__dict__["transition"] = observed
