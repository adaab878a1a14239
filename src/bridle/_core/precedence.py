"""Which source of an option wins, highest first.

    argument             what the caller put into the records
    environment          CLAUDE_<FIELD>, for a closed list of scalar settings; empty counts as unset
    configuration        the tables [cli], [sdk] and [bidir] of bridle.toml, already parsed
    default              what the record says

The highest source that says a field replaces the others whole, with two exceptions: `env` and
`settings` merge key by key and deeply, the higher source winning a key; `add_dirs` and `extra_args`
append, configuration first, duplicates kept. Every value passes the same check wherever it comes
from, and an error names the source. Nothing is read here: the caller hands the sources in.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import msgspec

from bridle._fields import Field, Record, is_list, is_mapping, refuse_unknown
from bridle.errors import OptionsError
from bridle.options import RECORDS, BidirOptions, CliOptions, SdkOptions, check_session

# Inside a tool call of another session the CLI exports these about itself: no wish of the user's.
_EXPORTED_BY_CLI = {"CLAUDE_EFFORT"}
_MARK_OF_CLI = "CLAUDECODE"


class ResolvedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The final records, and for every field (`"cli.model"`) the source it came from.

    Origins are `argument`, `environment:CLAUDE_MODEL`, `config`, `default`, and `config+argument`
    for a field merged from both.
    """

    cli: CliOptions
    sdk: SdkOptions
    bidir: BidirOptions
    origin: Mapping[str, str]


def resolve_options(
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
) -> ResolvedOptions:
    """Combine the sources into final records. Pure: reads neither environment nor files."""
    given: dict[str, Record | None] = {"cli": cli, "sdk": sdk, "bidir": bidir}
    tables = _tables(config or {})
    origin: dict[str, str] = {}
    final: dict[str, Record] = {}
    for table, cls in RECORDS.items():
        record = given[table]
        if record is not None and not isinstance(record, cls):
            found = type(cast("object", record)).__name__
            raise OptionsError(table, f"is a {found}", fix=f"Give a {cls.__name__} here.")
        said: Mapping[str, object] = record.given() if record is not None else {}
        values = _resolve(table, cls, said, environ or {}, tables.get(table, {}), origin)
        final[table] = cls(**values)
    resolved = ResolvedOptions(
        cli=cast("CliOptions", final["cli"]),
        sdk=cast("SdkOptions", final["sdk"]),
        bidir=cast("BidirOptions", final["bidir"]),
        origin=MappingProxyType(origin),
    )
    check_session(resolved.cli, resolved.bidir)
    return resolved


def _resolve(
    table: str,
    cls: type[Record],
    said: Mapping[str, object],
    environ: Mapping[str, str],
    configured: Mapping[str, object],
    origin: dict[str, str],
) -> dict[str, object]:
    """The values of one record that differ from not being said, noting where each came from."""
    values: dict[str, object] = {}
    for name, row in cls.fields.items():
        layers = {
            "config": _from_config(table, row, configured),
            f"environment:{variable_of(row)}": _from_environment(row, environ),
            "argument": said.get(name),
        }
        present = {source: value for source, value in layers.items() if value is not None}
        if row.merge == "replace":
            present = dict(list(present.items())[-1:])
        origin[f"{table}.{name}"] = "+".join(present) or "default"
        for value in present.values():  # lowest first
            values[name] = _merged(name, values.get(name), value)
    return values


# ---------------------------------------------------------------- sources


def variable_of(row: Field) -> str:
    """The environment variable of a field."""
    return f"CLAUDE_{row.name.upper()}"


def _from_environment(row: Field, environ: Mapping[str, str]) -> object:
    variable = variable_of(row)
    word = environ.get(variable, "").strip()
    if row.env is None or not word:
        return None
    if variable in _EXPORTED_BY_CLI and _MARK_OF_CLI in environ:
        return None
    try:
        value = row.env(word)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}.get(
            cast("type", row.env), "true or false"
        )
        raise OptionsError(variable, f"is {word!r}", fix=f"Set it to {kind}.") from None
    return row.check(variable, value)


def _tables(config: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """The tables of a configuration, with every name in them known."""
    tables: dict[str, Mapping[str, object]] = {}
    for table, content in config.items():
        if table not in RECORDS:
            fix = f"Tables are {', '.join(f'[{name}]' for name in RECORDS)}."
            raise OptionsError(f"config: {table}", "is not a table of options", fix=fix)
        if not is_mapping(content):
            raise OptionsError(f"config: {table}", "is not a table", fix=f"Write [{table}] above.")
        for name in content:
            if name not in RECORDS[table].fields:
                refuse_unknown(str(name), RECORDS[table], f"config: {table}.{name}")
        tables[table] = cast("Mapping[str, object]", content)
    return tables


def _from_config(table: str, row: Field, configured: Mapping[str, object]) -> object:
    if row.name not in configured:
        return None
    blame = f"config: {table}.{row.name}"
    if not row.config:
        raise OptionsError(blame, "cannot come from a file", fix="Give it in your program.")
    return row.check(blame, configured[row.name])


# ---------------------------------------------------------------- merging


def _merged(name: str, low: object, high: object) -> object:
    """Two sources of one field as one; anything over nothing is itself."""
    if low is None:
        return high
    if is_list(low) and is_list(high):
        return (*low, *high)
    if is_mapping(low) and is_mapping(high):
        return deep_merge(low, high)
    fix = "Give both as mappings, or only one of them."
    raise OptionsError(name, "is a file in one source and cannot be merged with the other", fix=fix)


def deep_merge(low: Mapping[object, object], high: Mapping[object, object]) -> dict[object, object]:
    """Both mappings in one: objects merge, anything else is the higher one's."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if is_mapping(below) and is_mapping(value) else value
    return merged
