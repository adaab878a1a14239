"""Which tests `make test` leaves to `make test-all`: those with the mark `longer`.

The rule is in CONTRIBUTING.md. A test on the older real CLI gets the mark here, unless it has the
mark `both_clis`. `longer(after=2)` leaves the first two cases of a parametrized test in `make
test`, not counting those on the older CLI. A test on each version that the fake CLI can play gets
the mark for the version in the middle, which behaves as the newest or the oldest one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from bridle.testing.fake_cli import FLAVOURS

OLDER = {
    "cli_path": ("2.1.197",),
    "start": ("real older",),
    "real_cli": ("/.clis/",),
    "cli": ("/.clis/",),
}
"""Parameter of a test → texts. The test is on the older CLI if the value contains one of them."""


def on_older_cli(item: pytest.Item) -> bool:
    """Return whether a test runs on the older real CLI."""
    given = item.callspec.params if isinstance(item, pytest.Function) and _has_cases(item) else {}
    return any(text in str(given.get(name, "")) for name, texts in OLDER.items() for text in texts)


def on_version_between(item: pytest.Item) -> bool:
    """Return whether a test plays all versions of the fake CLI, and this is one in the middle."""
    marks = item.iter_markers("parametrize")
    plays_all = any(mark.args[:2] == ("flavour", FLAVOURS) for mark in marks)
    return plays_all and item.callspec.params["flavour"] in FLAVOURS[1:-1]  # type: ignore[attr-defined]


def _has_cases(item: pytest.Function) -> bool:
    return hasattr(item, "callspec")


def mark_longer(items: Iterable[pytest.Item]) -> None:
    """Give the mark `longer` to exactly the tests that `make test` leaves out."""
    cases = Counter[str]()
    for item in items:
        mark = item.get_closest_marker("longer")
        if on_older_cli(item):
            if item.get_closest_marker("both_clis") is None:
                item.add_marker("longer")
        elif on_version_between(item):
            item.add_marker("longer")
        elif mark is not None and "after" in mark.kwargs:
            function = item.nodeid.partition("[")[0]
            cases[function] += 1
            if cases[function] <= mark.kwargs["after"]:
                item.own_markers.remove(mark)
