"""Masking of what looks like a credential, in text that others may see.

Patterns find what they know; they guarantee nothing. What is known to be a secret is kept out of
logs, errors and recordings by name, where it is known.
"""

from __future__ import annotations

import re

MASK = "***"

# Looks of credentials, and of assignments to names that usually hold one.
_SECRETS = (
    r"\bsk-[\w-]{6,}"
    r"|(?<=bearer )\S+|(?<=api-key: )\S+|(?<=authorization: )[^\r\n]+"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
    r"""|(?<=key=|ret=|ken=|ord=)[^\s"',;&]+"""
    r"""|(?<=key":|ret":|ken":|ord":)\s*"[^"]*\""""
)


def redact_text(text: str) -> str:
    """The text with everything that looks like a credential masked."""
    return re.sub(_SECRETS, MASK, text, flags=re.IGNORECASE)
