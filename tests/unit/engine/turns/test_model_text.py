"""The text of the model at the end of a turn."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.cli import assistant, decoded, result, synthetic

from bridle._engine.turns.model_text import model_text, result_text
from bridle.messages import AssistantMessage, ResultMessage

Json = dict[str, Any]

LAST = "said before"


@pytest.mark.parametrize(
    ("members", "completed", "expected"),
    [
        ({"result": "4"}, True, "4"),
        ({"result": ""}, True, ""),
        ({"result": "Total cost: $1", "num_turns": 0}, True, "Total cost: $1"),
        ({"result": "API Error: 500", "is_error": True}, False, LAST),
        ({"result": "operation blocked by hook", "num_turns": 0}, False, LAST),
        ({"result": "prose, not JSON"}, False, "prose, not JSON"),
        ({"result": ""}, False, LAST),
        ({"subtype": "error_max_turns", "is_error": True}, False, LAST),
    ],
)
def test_the_text_of_a_result_is_the_models(members: Json, completed: bool, expected: str) -> None:
    (message,) = decoded(result(**members))
    assert isinstance(message, ResultMessage)
    assert result_text(message, LAST, completed=completed) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (assistant("4"), "4"),
        (synthetic("Total cost: $1"), ""),
        (assistant("API Error", error="server_error"), ""),
    ],
)
def test_the_text_of_a_message_is_the_models(line: bytes, expected: str) -> None:
    (message,) = decoded(line)
    assert isinstance(message, AssistantMessage)
    assert model_text(message) == expected
