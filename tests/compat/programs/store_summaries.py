"""Fold entries into a summary, as a store does when it appends."""

from claude_agent_sdk import fold_session_summary, project_key_for_directory

KEY = {"project_key": project_key_for_directory("/srv/app"), "session_id": "s-1"}
ENTRIES = [
    {
        "type": "user",
        "uuid": "u-1",
        "timestamp": "2026-01-02T03:04:05.000Z",
        "cwd": "/srv/app",
        "gitBranch": "main",
        "message": {"role": "user", "content": "Feed the horse"},
    },
    {"type": "custom-title", "customTitle": "Feeding"},
    {"type": "tag", "tag": "daily"},
]
summary = fold_session_summary(None, KEY, ENTRIES[:1])
print(KEY["project_key"], summary["session_id"], summary["mtime"])
print(sorted(summary["data"].items()))
print(sorted(fold_session_summary(summary, KEY, ENTRIES[1:])["data"].items()))
