"""The error classes, their parents and their attributes."""

import pickle

from claude_agent_sdk import (
    ClaudeSDKError,
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ProcessError,
    ResultError,
)

problems = [
    ClaudeSDKError("a"),
    CLIConnectionError("b"),
    CLINotFoundError("c", "/bin/claude"),
    ProcessError("d", exit_code=2, stderr="e"),
    CLIJSONDecodeError('{"x', ValueError("f")),
    ResultError("g", {"subtype": "error_max_turns", "errors": ["h"], "session_id": "i"}, 1),
]
for problem in problems:
    print([one.__name__ for one in type(problem).__mro__[:-3]], problem)
print(problems[3].exit_code, problems[3].stderr, problems[4].line)
same = pickle.loads(pickle.dumps(problems[5]))
print(same.subtype, same.errors, same.session_id, same.exit_code, same.data == problems[5].data)
for errors in ("x", " x ", ["a", " b ", "", 3, None], ("a",), {"a": 1}):
    print([ResultError("j", {"errors": errors}).errors, ResultError("k", {"subtype": 3}).subtype])
