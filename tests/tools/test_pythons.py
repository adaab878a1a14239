"""Which other Pythons `make test-all` runs the tests of sessions on."""

from __future__ import annotations

from pathlib import Path

from pythons import find, versions_to_test


def test_the_versions_are_those_of_the_classifiers() -> None:
    assert versions_to_test() == ["3.11", "3.12", "3.13"]


def test_the_newest_release_of_pyenv_is_found(tmp_path: Path) -> None:
    for release in ("3.12.9", "3.12.10", "3.13.1"):
        place = tmp_path / "versions" / release / "bin"
        place.mkdir(parents=True)
        (place / f"python{release.rpartition('.')[0]}").touch()
    found = find("3.12", tmp_path)
    assert found == tmp_path / "versions/3.12.10/bin/python3.12"


def test_a_version_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert find("3.99", tmp_path) is None
