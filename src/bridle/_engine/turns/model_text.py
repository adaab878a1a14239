"""Tell the text of the model from messages that the CLI wrote itself, such as error reports."""

from __future__ import annotations

from bridle.messages import AssistantMessage, ResultMessage

SYNTHETIC = "<synthetic>"
"""The model name of messages that the CLI wrote itself."""

UNKNOWN_COMMAND = "Unknown command:"
"""The beginning of the CLI's answer to an unknown slash command."""

_FAILED_KINDS = ("failed", "unknown", "unavailable_headless")
"""The kinds in ``local_command_outcome`` of slash commands that did nothing."""

# 2.1.197 marks a failed slash command only by its wording.
_FAILED_COMMAND = ("Error:", "Error during compaction:", UNKNOWN_COMMAND)


def is_failed_command(message: AssistantMessage) -> bool:
    """Return True if the message reports that a slash command failed."""
    if message.model != SYNTHETIC or message.error is not None:
        return False
    outcome = message.local_command_outcome or {}
    return outcome.get("kind") in _FAILED_KINDS or message.text.startswith(_FAILED_COMMAND)


def is_error_report(message: AssistantMessage) -> bool:
    """Return True if the CLI wrote the message itself, to report a failure.

    The output of a slash command that succeeded counts as text.
    """
    return message.error is not None or message.is_api_error_message or is_failed_command(message)


def model_text(message: AssistantMessage) -> str:
    """Return the text of a message if the model wrote it, else ""."""
    return "" if message.model == SYNTHETIC or is_error_report(message) else message.text


def result_text(result: ResultMessage, last: str, *, completed: bool) -> str:
    """Return the model's text at the end of a turn, never the CLI's report of a failure.

    If the turn completed, this is the text of the result. Otherwise the text of the result may be
    a report: always with ``is_error``, and also without a model call (a slash command that failed,
    a prompt that a hook blocked). In these cases this is ``last``, the last text the model wrote.
    """
    if completed:
        return result.result or ""
    is_report = result.is_error or not result.num_turns
    return last if is_report else result.result or last
