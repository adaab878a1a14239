"""Docstrings in the three conventions, and in none."""

from __future__ import annotations

import inspect

import pytest

from bridle.tools._docstrings import Docstring, parse

GOOGLE = """
    Search the archive.

    Slow on Mondays.

    Args:
        query: What to look for,
            in the words of the user.
        limit (int, optional): How many: at most.

        **rest: Anything else.

    Returns:
        A list.
    """

NUMPY = """
    Search the archive.

    Parameters
    ----------
    query : str
        What to look for,
        in the words of the user.
    limit, offset : int
        A window.
    flag
        On or off.

    Returns
    -------
    list
        The hits.
    """

SPHINX = """
    Search the archive.

    :param query: What to look for,
        in the words of the user.
    :param int limit: How many.
    :type limit: int
    :returns: A list.
    """


@pytest.mark.parametrize(
    ("docstring", "text", "parameters"),
    [
        ("", "", {}),
        ("Add two numbers.", "Add two numbers.", {}),
        (
            GOOGLE,
            "Search the archive.\n\nSlow on Mondays.\n\nReturns:\n    A list.",
            {
                "query": "What to look for, in the words of the user.",
                "limit": "How many: at most.",
                "rest": "Anything else.",
            },
        ),
        (
            NUMPY,
            "Search the archive.\n\nReturns\n-------\nlist\n    The hits.",
            {
                "query": "What to look for, in the words of the user.",
                "limit": "A window.",
                "offset": "A window.",
                "flag": "On or off.",
            },
        ),
        (
            SPHINX,
            "Search the archive.\n\n:returns: A list.",
            {"query": "What to look for, in the words of the user.", "limit": "How many."},
        ),
        ("\nArgs:\n    a: One.", "", {"a": "One."}),
        ("\nArgs:\n    a:\n    b: Two.", "", {"b": "Two."}),
        ("\nArgs:\n    no entry here\n    a: One.", "", {"a": "One."}),
        ("Args:", "", {}),
        ("Parameters\n----------", "", {}),
        ("Parameters\nof life", "Parameters\nof life", {}),
        ("Note: Args: are nice", "Note: Args: are nice", {}),
    ],
    ids=[
        "empty",
        "plain",
        "google",
        "numpy",
        "sphinx",
        "only-parameters",
        "nothing-said",
        "stray-line",
        "google-empty",
        "numpy-empty",
        "no-heading",
        "inline",
    ],
)
def test_a_docstring_is_sorted_into_text_and_parameters(
    docstring: str, text: str, parameters: dict[str, str]
) -> None:
    assert parse(inspect.cleandoc(docstring)) == Docstring(text, parameters)
