"""Combine the sources of options. The first source in this list that sets an option wins.

    argument             the fields of the records that the caller passed
    environment          CLAUDE_<FIELD>, for some scalar settings; an empty value counts as unset
    configuration        the tables [cli], [sdk] and [bidir] of bridle.toml, already parsed
    default              the default of the record

The highest source that sets a field replaces the others, with two exceptions: `env` and `settings`
merge deeply key by key, and the higher source wins a key; `add_dirs` and `extra_args` append,
configuration first, and keep duplicates. Every value passes the same check in every source, and an
error names the source. Nothing is read here: the caller passes the sources in.

A value that can weaken a gate (`Field.weakens`) counts only from an argument, or from a
configuration that the program named. From the environment, or from a configuration that a variable
named, it is left out and listed in `ResolvedOptions.ignored`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, cast

import msgspec

from bridle._records.fields import Field, Record, is_list, is_mapping, refuse_unknown
from bridle.errors import OptionsError
from bridle.options import (
    GATE_VARIABLES,
    RECORDS,
    BidirOptions,
    CliOptions,
    SdkOptions,
    check_session,
)

# The CLI exports these to the tools it runs. They describe that session, not the user's choice.
_EXPORTED_BY_CLI = {"CLAUDE_EFFORT"}
_MARK_OF_CLI = "CLAUDECODE"

_OFF = frozenset({"", "0", "false", "no", "off"})


class IgnoredSetting(msgspec.Struct, frozen=True):
    """A setting that was left out because it could weaken a gate. `str()` says what to do."""

    #: The field that it would have set, such as `"bidir.callback_timeout"`.
    field: str
    #: The environment variable that set it, or that named its configuration file.
    variable: str

    def __str__(self) -> str:
        table, name = self.field.split(".")
        option = f"{RECORDS[table].__name__}.{name}"
        if self.variable in GATE_VARIABLES:
            return (
                f"{self.variable} is not passed on to the CLI, because it switches hooks off. "
                f"Set it in {option} if the CLI must have it."
            )
        row = RECORDS[table].fields[name]
        setting = self.variable
        if setting != variable_of(row):
            setting = f"{name} under [{table}] in the file that {self.variable} names"
        return (
            f"{setting} is ignored, because it can weaken hooks, permissions or the version "
            f"check. Set {option} in the program, or name the file in SdkOptions.config_file."
        )


class ResolvedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The final records, and for every field (`"cli.model"`) the source it came from.

    Origins are `argument`, `environment:CLAUDE_MODEL`, `config`, `default`, and `config+argument`
    for a field merged from both. `ignored` lists settings that were left out because they could
    weaken a gate.
    """

    cli: CliOptions
    sdk: SdkOptions
    bidir: BidirOptions
    origin: Mapping[str, str]
    ignored: tuple[IgnoredSetting, ...] = ()


def resolve_options(
    cli: CliOptions | None = None,
    sdk: SdkOptions | None = None,
    bidir: BidirOptions | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config: Mapping[str, object] | None = None,
    config_variable: str | None = None,
) -> ResolvedOptions:
    """Combine the sources into final records. Pure: reads neither environment nor files.

    `config_variable` is the environment variable that named the configuration file. None if the
    program named it.

    Raises:
        OptionsError: a value is invalid, or contradicts another one.
    """
    given: dict[str, Record | None] = {"cli": cli, "sdk": sdk, "bidir": bidir}
    tables = _tables(config or {})
    origin: dict[str, str] = {}
    ignored: list[IgnoredSetting] = []
    final: dict[str, Record] = {}
    for table, cls in RECORDS.items():
        record = given[table]
        if record is not None and not isinstance(record, cls):
            found = type(cast("object", record)).__name__
            problem = f"must be a {cls.__name__}, got {found}"
            raise OptionsError(table, problem, fix=f"Pass a {cls.__name__} here.")
        said: Mapping[str, object] = record.given() if record is not None else {}
        values: dict[str, object] = {}
        for name, row in cls.fields.items():
            variable = variable_of(row)
            layers = [
                _Layer("argument", said.get(name)),
                _Layer(f"environment:{variable}", _from_environment(row, environ or {}), variable),
                _Layer("config", _from_config(table, row, tables.get(table, {})), config_variable),
            ]
            field = f"{table}.{name}"
            kept = _effective(field, row, layers, ignored)
            origin[field] = "+".join(layer.source for layer in kept) or "default"
            for layer in kept:
                values[name] = _merged(name, values.get(name), layer.value)
        final[table] = cls(**values)
    resolved = ResolvedOptions(
        cli=cast("CliOptions", final["cli"]),
        sdk=cast("SdkOptions", final["sdk"]),
        bidir=cast("BidirOptions", final["bidir"]),
        origin=MappingProxyType(origin),
    )
    check_session(resolved.cli, resolved.bidir)
    ignored.extend(_withheld_variables(resolved, environ or {}))
    return msgspec.structs.replace(resolved, ignored=tuple(ignored))


class _Layer(NamedTuple):
    """The value of a field in one source. None if the source does not set it."""

    source: str
    value: object
    #: The environment variable that it comes from. None if it comes from the program.
    variable: str | None = None


def _effective(
    field: str, row: Field, layers: Iterable[_Layer], ignored: list[IgnoredSetting]
) -> list[_Layer]:
    """Return the layers that make up the value, lowest first. ``layers`` come highest first."""
    kept: list[_Layer] = []
    for layer in layers:
        if layer.value is None:
            continue
        if layer.variable is not None and row.weakens is not None and row.weakens(layer.value):
            ignored.append(IgnoredSetting(field, layer.variable))
            continue
        kept.insert(0, layer)
        if row.merge == "replace":
            break
    return kept


def _withheld_variables(
    options: ResolvedOptions, environ: Mapping[str, str]
) -> Iterator[IgnoredSetting]:
    """Yield the variables that switch hooks off and that the CLI would inherit otherwise."""
    inherits = options.sdk.inherit_env
    for name in GATE_VARIABLES:
        is_on = environ.get(name, "").strip().lower() not in _OFF
        is_inherited = inherits is True or (is_list(inherits) and name in inherits)
        if is_on and is_inherited and name not in (options.cli.env or {}):
            yield IgnoredSetting("cli.env", name)


# ---------------------------------------------------------------- sources


def variable_of(row: Field) -> str:
    """Return the name of the environment variable of a field."""
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
    """Return the tables of a configuration, after checking every name in them."""
    tables: dict[str, Mapping[str, object]] = {}
    for table, content in config.items():
        if table not in RECORDS:
            fix = f"Tables are {', '.join(f'[{name}]' for name in RECORDS)}."
            raise OptionsError(f"config: {table}", "is not a table of options", fix=fix)
        if not is_mapping(content):
            raise OptionsError(f"config: {table}", "is not a table", fix=f"Write [{table}].")
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
        problem = "cannot be set in a configuration file"
        raise OptionsError(blame, problem, fix="Set it in your program.")
    return row.check(blame, configured[row.name])


# ---------------------------------------------------------------- merging


def _merged(name: str, low: object, high: object) -> object:
    """Merge the values of two sources of one field."""
    if low is None:
        return high
    if is_list(low) and is_list(high):
        return (*low, *high)
    if is_mapping(low) and is_mapping(high):
        return deep_merge(low, high)
    problem = "cannot be merged, because one of its two sources sets it to a path"
    raise OptionsError(name, problem, fix="Use mappings in both sources, or set it in one.")


def deep_merge(low: Mapping[object, object], high: Mapping[object, object]) -> dict[object, object]:
    """Merge two mappings. Nested mappings merge, for other values ``high`` wins."""
    merged = dict(low)
    for key, value in high.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if is_mapping(below) and is_mapping(value) else value
    return merged
