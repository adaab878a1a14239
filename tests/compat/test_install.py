"""`bridle.compat.install`, in fresh interpreters."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS = "bridle.compat.claude_agent_sdk"


def printed(code: str) -> str:
    """What a program prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


INSTALL = "import bridle.compat; bridle.compat.install(); "


def test_the_module_and_the_function_query_can_both_be_imported() -> None:
    code = f"{INSTALL}import claude_agent_sdk.query, claude_agent_sdk; "
    code += "from claude_agent_sdk.query import query; import sys; "
    code += "print(claude_agent_sdk.query is query, query.__module__)"
    assert printed(code) == f"True {OURS}.query"


@pytest.mark.longer
@pytest.mark.pinned
@pytest.mark.parametrize(
    ("module", "name"), [("_version", "__version__"), ("_cli_version", "__cli_version__")]
)
def test_the_versions_are_those_of_the_official_package(module: str, name: str) -> None:
    theirs = printed(f"from claude_agent_sdk.{module} import {name}; print({name})")
    assert (
        printed(f"{INSTALL}from claude_agent_sdk.{module} import {name}; print({name})") == theirs
    )


@pytest.mark.longer
def test_the_public_names_are_those_of_the_official_package() -> None:
    names = "import claude_agent_sdk; print(sorted(claude_agent_sdk.__all__))"
    assert printed(f"{INSTALL}{names}") == printed(names)
    star = "from claude_agent_sdk import *; print(sorted(n for n in dir() if n[0] != '_'))"
    assert printed(star) == printed(f"{INSTALL}del bridle; {star}")


@pytest.mark.parametrize("module", ["", ".types", ".testing", ".client"])
def test_imports_of_the_official_package_get_the_drop_in(module: str) -> None:
    code = f"{INSTALL}import claude_agent_sdk{module}; print(claude_agent_sdk{module}.__name__)"
    assert printed(code) == f"{OURS}{module}"


def test_the_official_package_does_not_have_to_be_installed() -> None:
    hide = "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; "
    code = f"import bridle.sync, msgspec; {INSTALL}{hide}from claude_agent_sdk import query; "
    assert printed(f"{code}print(query.__module__)") == f"{OURS}.query"


def test_classes_are_the_same_under_both_names() -> None:
    code = f"{INSTALL}import claude_agent_sdk.types as a, {OURS}.types as b; "
    assert printed(f"{code}print(a.TextBlock is b.TextBlock)") == "True"


def test_a_private_module_is_not_found() -> None:
    code = f"{INSTALL}\ntry:\n    import claude_agent_sdk._internal\n"
    code += "except ModuleNotFoundError as error:\n    print(error.name)"
    assert printed(code) == "claude_agent_sdk._internal"


@pytest.mark.longer
def test_installing_after_the_official_package_was_imported_fails() -> None:
    code = "import claude_agent_sdk, bridle.compat\ntry:\n    bridle.compat.install()\n"
    assert "Call install() first" in printed(
        f"{code}except RuntimeError as error:\n    print(error)"
    )


def test_importing_bridle_does_not_load_the_drop_in() -> None:
    code = "import bridle, sys; bridle.run; print([m for m in sys.modules if 'compat' in m])"
    assert printed(code) == "[]"


def test_the_drop_in_loads_neither_mcp_nor_trio() -> None:
    code = f"import {OURS}, sys; print(sorted(sys.modules.keys() & {{'mcp', 'trio', 'anyio'}}))"
    assert printed(code) == "[]"
