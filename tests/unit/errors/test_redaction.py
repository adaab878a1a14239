"""What is a secret in a text: by its value, by its name, by its look; and what is none."""

from __future__ import annotations

import base64
import json
import time
import urllib.parse
from typing import Any

import pytest

from bridle.errors._redaction import (
    Redactor,
    is_secret_name,
    is_telling,
    redact_text,
    secret_variables,
    secrets_in,
)

# Keys in one piece would be found by whoever looks for keys in sources.
KEY = "sk-" + "ant-api03-AbC_123-x"
GITHUB = "ghp_" + "abcdefghijklmnop0123"
AWS = "AKIA" + "ABCDEFGHIJKLMNOP"
JWT = "eyJ" + "hbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"
PRIVATE = "-----BEGIN RSA " + "PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----"


# ------------------------------------------------------------------------- looks


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"the key {KEY}, then", "the key ***, then"),
        ("use Bearer abc.def now", "use Bearer *** now"),
        ("BEARER  abc", "BEARER  ***"),
        ("Basic dXNlcjpwYXNz is", "Basic *** is"),
        (f"token {JWT} end", "token *** end"),
        (f"push with {GITHUB}", "push with ***"),
        ("glpat-" + "0123456789abcdefghij", "***"),
        ("xoxb-" + "1234567890-abc", "***"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/services/***"),
        ("AIza" + "0123456789012345678901234567890", "***"),
        ("npm_" + "0123456789abcdefghij0123456789", "***"),
        (f"{AWS} and ASIA{AWS[4:]}", "*** and ***"),
        (f"a\n{PRIVATE}\nb", "a\n***\nb"),
        (f"a\n{PRIVATE[:40]}", "a\n***"),
        ("postgres://me:word@host/db", "postgres://***@host/db"),
        ("curl -u me:word http://x", "curl -u *** http://x"),
        ("<password>word</password>", "<password>***</password>"),
        ("<db:Password a='b'>word</db:Password>", "<db:Password a='b'>***</db:Password>"),
        ("pg://me:a@b@host/db", "pg://***@host/db"),
        ("pg://me:a/b@host/db", "pg://***@host/db"),
        ("https://0123token@host/x", "https://***@host/x"),
        ("curl --user me:word http://x", "curl --user *** http://x"),
        ("sshpass -p word ssh host", "sshpass -p *** ssh host"),
        ("machine h login me password word", "machine h login me password ***"),
        ("https://h/?key=a&x=y&sig=b", "https://h/?key=***&x=y&sig=***"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, masked: str) -> None:
    assert redact_text(text) == masked
    assert redact_text(masked) == masked


# ------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("API_KEY=abc def", "API_KEY=*** def"),
        ("export GITHUB_TOKEN='a b c' && run", "export GITHUB_TOKEN='***' && run"),
        ('password = "a b"', 'password = "***"'),
        ("password: hunter2\nuser: me", "password: ***\nuser: me"),
        ("Authorization: Basic abc def", "Authorization: ***"),
        ("Cookie: a=b; c=d", "Cookie: ***"),
        ("x-api-key: abc", "x-api-key: ***"),
        ("secret := f()", "secret := ***"),
        ("'client_secret' => 'x'", "'client_secret' => '***'"),
        ('{"apiKey": "a b", "x": "y"}', '{"apiKey": "***", "x": "y"}'),
        ('{\\"apiKey\\": \\"a b\\"}', '{\\"apiKey\\": \\"***\\"}'),
        ("token=a&user=b", "token=***&user=b"),
        ("MY_TOKEN=a,b,X=1", "MY_TOKEN=***,X=1"),
        ("Server=x;Password=a;y", "Server=x;Password=***;y"),
        ("MYSQL_PWD=abc PWD=/here OLDPWD=/there", "MYSQL_PWD=*** PWD=/here OLDPWD=/there"),
        ("API_KEY_2=abc", "API_KEY_2=***"),
        ("tool --api-key abc --token=d -v", "tool --api-key *** --token=*** -v"),
        ("tool --password 'a b' x", "tool --password '***' x"),
        ("token: Bearer abc", "token: *** ***"),
        ("DB_PASS=a SECRET_KEY_BASE=b\\nMY_KEY=c", "DB_PASS=*** SECRET_KEY_BASE=***\\nMY_KEY=***"),
        ("API_KEY_PROD: a, SENTRY_DSN=b", "API_KEY_PROD: ***, SENTRY_DSN=***"),
        ("GH_PAT=a creds=b tokens=c", "GH_PAT=*** creds=*** tokens=***"),
        ("x --from=password=a", "x --from=password=***"),
        ("my access key id: a", "my access key id: ***"),
        ('api_key: str = "a b"', 'api_key: str = "***"'),
        ("apiKey: string='a'", "apiKey: string='***'"),
        ("token: str | None = 'a'", "token: str | None = '***'"),
        ("**Password:** a b", "**Password:** *** b"),
        ("a:\n  password: |\n    b\n    c\n  d: e", "a:\n  password: |\n    ***\n  d: e"),
    ],
)
def test_what_a_name_calls_a_secret_is_masked(text: str, masked: str) -> None:
    assert redact_text(text) == masked
    assert redact_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "nothing to hide",
        "short",
        "Unexpected token } in JSON, see https://host:80/x",
        "max_tokens: 100, input_tokens=5",
        "apiKeySource: env",
        "task-list of a disk-based tool",
        "def login(password: str, token: string) -> None",
        "password = os.environ['X']; secret=$SECRET secret=${SECRET} token=$(cat x)",
        "if token == other: Token::parse()",
        "password: <required> secret: none token=null",
        "tool --token --other x",
        "monkey=a keyboard: b author=c bypass=d compass: e passenger=f",
        "cache_key=a PRIMARY_KEY=b sort_key=c key=d public_key: e",
        "token_count=a tokenSource: b secret_name=c AUTH_URL=d is_token_valid=e",
        "tokens: 12,345 **Tokens:** 1.7k / 200k",
        "https://git@host/x http://host:80/a@b ssh://deploy@host",
        "-" * 3000 + "token",
    ],
)
def test_what_only_sounds_like_a_secret_is_left_alone(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token", True),
        ("X-Api-Key", True),
        ("apiKeyHelper", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("db_pwd", True),
        ("refreshToken", True),
        ("PWD", False),
        ("tokens", True),
        ("access_tokens", True),
        ("DB_PASS", True),
        ("OPENAI_KEY", True),
        ("x-functions-key", True),
        ("ssh_key", True),
        ("SECRET_KEY_BASE", True),
        ("API_KEY_PROD", True),
        ("privateKeyPem", True),
        ("SENTRY_DSN", True),
        ("X-Auth", True),
        ("creds", True),
        ("tokenSource", False),
        ("input_tokens", False),
        ("maxOutputTokens", False),
        ("needsAuthMcpServers", False),
        ("has_token_now", False),
        ("cache_key", False),
        ("CACHE_KEY", False),
        ("author", False),
        ("key", False),
        ("KEY", False),
        ("", False),
    ],
)
def test_names_of_secrets_are_known_by_their_words(name: str, expected: bool) -> None:
    assert is_secret_name(name) is expected


# ------------------------------------------------------------------------- values

SECRET = 'pa"ss\\wörd/+ \n1😀'


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        urllib.parse.quote(SECRET),
        urllib.parse.quote(SECRET, safe=""),
        urllib.parse.quote_plus(SECRET),
        urllib.parse.quote(SECRET, safe="").lower(),
        SECRET.encode().hex(),
        SECRET.encode().hex().upper(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"me:{SECRET}".encode()).decode(),
        base64.b64encode(f"u:{SECRET}:x".encode()).decode(),
        base64.urlsafe_b64encode(f"{SECRET}?".encode()).decode(),
    ],
    ids=[
        *("plain", "json", "json-utf8", "url", "url-all", "form", "url-lower", "hex", "hex-upper"),
        *("b64", "b64-1", "b64-2", "b64url"),
    ],
)
def test_a_known_value_is_masked_however_it_is_written(written: str) -> None:
    redactor = Redactor([SECRET])
    masked = redactor.text(f"<{written}>")
    assert "***" in masked
    assert len(masked) < 20
    assert redactor.masked == {"value": 1, "name": 0, "look": 0}


def test_text_with_half_a_character_is_redacted() -> None:
    assert Redactor(["\udcff-abc-\ud83d"]).text("is \udcff-abc-\ud83d") == "is ***"


def test_secrets_that_overlap_are_one() -> None:
    redactor = Redactor(["abc", "ab", "bcd", ""])
    assert redactor.text("abcd ab API_KEY=abc") == "*** *** API_KEY=***"
    assert redactor.masked == {"value": 3, "name": 0, "look": 0}


def test_a_value_given_by_hand_is_masked_however_short_it_is() -> None:
    assert Redactor(["x1"]).text("x1!") == "***!"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", False),
        ("a-1b2", False),
        ("a-1b2c", True),
        ("aaaaaaaaaaaa", False),
        ("production", True),
        ("disabled", False),
        ("12345678", False),
        ("1234567890", True),
    ],
)
def test_only_what_can_be_distinguished_from_other_text_is_looked_for(
    value: str, expected: bool
) -> None:
    assert is_telling(value) is expected


@pytest.mark.parametrize(
    ("variables", "given", "expected"),
    [
        ({"API_KEY": "marker-1", "OTHER": "marker-2"}, False, {"marker-1"}),
        ({"API_KEY": "marker-1", "OTHER": "marker-2"}, True, {"marker-1", "marker-2"}),
        ({"API_KEY": "short"}, True, set()),
        ({"HOME": "/home/me/marker", "X_PATH": "/marker", "LC_ALL": "C.UTF-8"}, True, set()),
        ({"X_DIR": "pg://u:marker-1@h/"}, False, {"marker-1"}),
        (
            {"Authorization": "Bearer marker-1", "Content-Type": "text/plain"},
            True,
            {"Bearer marker-1", "marker-1"},
        ),
        (
            {"CUSTOM_HEADERS": "A: marker-1\nB: marker-2"},
            True,
            {"A: marker-1\nB: marker-2", "marker-1", "marker-2"},
        ),
        ({"X_PRIVATE_KEY": PRIVATE}, False, {PRIVATE, *PRIVATE.split("\n")[::3], "KEY-----"}),
    ],
)
def test_secrets_among_variables(variables: Any, given: bool, expected: set[str]) -> None:
    found = set(secret_variables(variables, given=given))
    assert found == expected


def test_secrets_in_a_document() -> None:
    document = {
        "apiKeyHelper": "/bin/marker-1",
        "env": {"A": "marker-2", "PORT": 5432},
        "mcpServers": {
            "a": {"command": "marker-no", "env": {"B": "marker-3"}},
            "b": {"headers": {"X": "marker-4"}},
        },
        "deep": [{"password": ["marker-5", 1234567890, None]}],
        "environment": "production-1",
    }
    assert set(secrets_in(document)) == {
        *("/bin/marker-1", "marker-2", "marker-3", "marker-4", "marker-5", "1234567890"),
    }


RANDOM = "Zq9" + "kLmP4xWkLmP4x"


def test_secrets_in_addresses_and_arguments() -> None:
    servers = {
        "a": {
            "command": "x",
            "args": [
                *("--api-key", "marker-1", "--token=marker-2", "PASSWORD=marker-3", RANDOM),
                *("--secret", "--verbose", "marker-no", "0123456789abcdef" * 2),
            ],
        },
        "b": {"url": f"https://u:marker-4@h/{RANDOM[::-1]}/v1?key=marker-5&page=marker-no"},
        "c": {"url": "https://marker-token-6@h/?access_token=marker-7&key=short"},
        "other": f"{RANDOM}-unasked",
    }
    assert set(secrets_in({"mcpServers": servers})) == {
        *("marker-1", "marker-2", "marker-3", "marker-4", "marker-5", "marker-token-6"),
        *("marker-7", RANDOM, RANDOM[::-1], "0123456789abcdef" * 2),
    }


@pytest.mark.parametrize(
    "text",
    [("://" + "a" * 50) * 2000, "a " * 50_000 + "token", "a.b-" * 50_000 + "key", "<a " * 20_000],
)
def test_long_texts_are_looked_through_quickly(text: str) -> None:
    started = time.process_time()
    assert redact_text(f"{text}</") == f"{text}</"
    assert time.process_time() - started < 3.0


# ------------------------------------------------------------------------- beginnings


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("all is well", ""),
        ("it is mar", ""),
        ("it is mark", "mark"),
        ("mark, mark", "mark"),
        ("it is marker-12", "marker-12"),
        ("a key sk-", "sk-"),
        ("a key sk-an", "sk-an"),
        ("a key sk-an\n", ""),
        ("", ""),
    ],
)
def test_a_secret_that_begins_at_the_end_is_noticed(text: str, rest: str) -> None:
    at = Redactor(["marker-123"]).find_beginning(text)
    assert text[at:] == rest


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("all is well", ""),
        ("123 of", ""),
        ("-123 of", "-123"),
        ("arker-123 of", "arker-123"),
        ("r-1234-123", "r-123"),
        ("-123-123 of", "-123"),
        ("", ""),
    ],
)
def test_a_secret_that_ends_at_the_start_is_noticed(text: str, rest: str) -> None:
    at = Redactor(["marker-123"]).find_ending(text)
    assert text[:at] == rest


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("well", "well"),
        ("ker-123 is marker-123 or marke", "*** is *** or ***"),
        ("marker-123", "***"),
        ("ker-123", "***"),
        ("marker-12", "***"),
        ("", ""),
    ],
)
def test_an_excerpt_may_be_cut_anywhere(text: str, masked: str) -> None:
    assert Redactor(["marker-123"]).excerpt(text) == masked
