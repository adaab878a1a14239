"""The site builds, without a warning and without a connection, and reading it makes none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# What a browser fetches by itself when it shows a page; a link is only followed by a reader.
FETCHED = {
    ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"),
    ("link", "href"), ("image", "href"), ("use", "href"), ("object", "data"), ("embed", "src"),
}  # fmt: skip


def build(target: Path) -> None:
    """Build the site into a directory."""
    # Whoever wants out has to pass a proxy that nobody serves.
    nowhere = dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"], "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(target)],
        cwd=REPOSITORY,
        env={**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Fetched(HTMLParser):
    """Collects what a page makes a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag begins."""
        if tag == "link" and dict(attrs).get("rel") in ("canonical", "prev", "next"):
            return
        self.addresses += [value or "" for name, value in attrs if (tag, name) in FETCHED]
        self.addresses += fetched_by_style(dict(attrs).get("style") or "")


def fetched_by_style(style: str) -> list[str]:
    """What a style sheet makes a browser fetch."""
    found = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", style)
    return ["".join(one) for one in found]


def is_elsewhere(address: str) -> bool:
    """Whether it leads out of the site."""
    return re.match(r"(?i)([a-z]+:)?//", address) is not None


def fetched_from_elsewhere(site: Path) -> set[str]:
    """What reading any page of a site makes a browser fetch from somewhere else."""
    outside: set[str] = set()
    for page in site.rglob("*.html"):
        reader = Fetched()
        reader.feed(page.read_text("utf-8"))
        outside |= {f"{page.name}: {one}" for one in reader.addresses if is_elsewhere(one)}
    for sheet in site.rglob("*.css"):
        fetched = fetched_by_style(sheet.read_text("utf-8"))
        outside |= {f"{sheet.name}: {one}" for one in fetched if is_elsewhere(one)}
    return outside


@pytest.mark.longer
def test_the_site_builds_and_reading_it_makes_no_request_beyond_it(tmp_path: Path) -> None:
    """In strict mode: every link and anchor resolves, or the build would have failed."""
    build(tmp_path)
    built = {page.relative_to(tmp_path).as_posix() for page in tmp_path.rglob("*.html")}
    for page in (REPOSITORY / "docs").rglob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert page.relative_to(REPOSITORY / "docs").with_name(f"{name}.html").as_posix() in built
    assert fetched_from_elsewhere(tmp_path) == set()
    # The theme would load a library from elsewhere as soon as a page has such a diagram.
    assert [page.name for page in tmp_path.rglob("*.html") if "mermaid" in page.read_text()] == []


def test_links_of_the_readme_resolve() -> None:
    """The site does not check this page: it is not part of it."""
    text = (REPOSITORY / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    missing = [link for link in links if "//" not in link and not (REPOSITORY / link).exists()]
    assert missing == []


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<script src="https://x.example/a.js"></script>', ["https://x.example/a.js"]),
        ('<link rel="stylesheet" href="//x.example/a.css">', ["//x.example/a.css"]),
        ('<p style="background: url(http://x.example/a.png)">', ["http://x.example/a.png"]),
        ('<a href="https://x.example">a link</a> <img src="a.png">', []),
    ],
)
def test_what_leads_elsewhere_is_found(page: str, expected: list[str]) -> None:
    reader = Fetched()
    reader.feed(page)
    assert [one for one in reader.addresses if is_elsewhere(one)] == expected
