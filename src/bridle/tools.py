"""Tools that run in your process: functions the model may call.

``@tool`` makes a :class:`Tool` of a function, :class:`ToolServer` puts tools under the name of an
MCP server. Those who would rather speak MCP themselves register a handler of raw messages; it
returns a mapping or an :class:`McpResponse`.

The rule of this file: descriptions only. What a tool is, is decided when it is made, and refused
then if it cannot work; the protocol is spoken in the core, and functions are called by the shell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import msgspec
from msgspec import Struct

from bridle._fields import boolean, integer, json_object, line, matching, positive, text
from bridle._signatures import Signature, read_signature
from bridle._source import JsonObject
from bridle.errors import OptionsError, ToolFailure
from bridle.permissions import Withdrawable

__all__ = ["McpError", "McpResponse", "Tool", "ToolContext", "ToolServer", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

_tool_name = matching(r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, '-' or '_'")
_size = integer(1)

# ---------------------------------------------------------------- the context of a call


class ToolContext(Withdrawable, Struct, frozen=True, kw_only=True):
    """Who calls a tool. A parameter annotated with this type receives it; the model sees nothing.

    `cancelled`, `wait_cancelled()` and `wait_cancelled_sync()` tell when nobody waits for the
    result any more. An ``async def`` tool is cancelled then; a plain one runs on, so a long one
    should look. `raw` is the JSON-RPC request.
    """

    #: The tool's own name, and the name its server is registered under.
    name: str
    server: str = ""
    #: The id of the model's `ToolUseBlock`, where the CLI tells it.
    tool_use_id: str | None = None
    #: The session the call came from, as the application has it: under `bridle.sync` the blocking
    #: one. None in a context built by hand, in a deep copy and in a pickle.
    session: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        again, (kind, values, slots) = Withdrawable.__reduce__(self)
        return again, (kind, {**values, "session": None}, slots)


def bind_session(context: ToolContext, session: object) -> None:
    """Tell a context its session; for whoever runs the call, before anybody else has it."""
    msgspec.structs.force_setattr(context, "session", session)


# ---------------------------------------------------------------- one tool


class Tool(Generic[P, R]):
    """A function with what the model is told about it. Made by :func:`tool`.

    Calling it calls the function, as if it had not been decorated.
    """

    def __init__(
        self,
        function: Callable[P, R],
        signature: Signature,
        *,
        name: str,
        description: str,
        annotations: Mapping[str, object],
        meta: Mapping[str, object],
        timeout: float | None,
    ) -> None:
        self.function = function
        self.name = name
        self.description = description
        #: Hints in MCP's own words: ``{"readOnlyHint": True}``.
        self.annotations = annotations
        #: What the server's list says about the tool under ``_meta``.
        self.meta = meta
        #: Seconds a call may take; None: as long as it wants.
        self.timeout = timeout
        self._signature = signature
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # `inspect.signature()` and `help()` show the function's

    @property
    def input_schema(self) -> JsonObject:
        """The JSON schema of the arguments."""
        return self._signature.schema

    @property
    def is_method(self) -> bool:
        """Whether this is a method of a class, to be had from an instance before it can run."""
        return self._signature.unbound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Tool[P, R]: ...
    @overload
    def __get__(
        self: Tool[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> Tool[Q, R]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Tool[Any, R]:
        """A tool defined in a class is bound to an instance the way a method is."""
        if instance is None or not self.is_method:
            return self
        method = cast("Any", self.function).__get__(instance, owner)
        return Tool(
            cast("Callable[..., R]", method),
            msgspec.structs.replace(self._signature, unbound=False),
            name=self.name,
            description=self.description,
            annotations=self.annotations,
            meta=self.meta,
            timeout=self.timeout,
        )

    def definition(self) -> JsonObject:
        """What MCP calls a tool: the entry of this one in the server's list."""
        entry: JsonObject = {"name": self.name}
        if self.description:
            entry["description"] = self.description
        entry["inputSchema"] = self.input_schema
        if self.annotations:
            entry["annotations"] = dict(self.annotations)
        if self.meta:
            entry["_meta"] = dict(self.meta)
        return entry

    def validate(self, arguments: Mapping[str, object]) -> JsonObject:
        """Turn the model's arguments into the keyword arguments of the function.

        Types are JSON's: a number in quotes is text. Arguments that do not exist are refused.

        Raises:
            ToolFailure: They do not fit; it says where, for the model to try again.
        """
        try:
            return self._signature.convert(arguments)
        except ValueError as error:
            raise ToolFailure(f"Invalid arguments for {self.name}: {error}.") from error

    def run(self, arguments: JsonObject, context: ToolContext) -> object:
        """Call the function with validated arguments, and with the context if it wants one."""
        injected = dict.fromkeys(self._signature.contexts, context)
        return cast("Callable[..., object]", self.function)(**arguments, **injected)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, object] | None = None,
    always_load: bool = True,
    max_result_chars: int | None = None,
    meta: Mapping[str, object] | None = None,
    annotations: Mapping[str, object] | None = None,
    read_only: bool | None = None,
    timeout: float | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, object] | None = None,
    always_load: bool = True,
    max_result_chars: int | None = None,
    meta: Mapping[str, object] | None = None,
    annotations: Mapping[str, object] | None = None,
    read_only: bool | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, object] | None = None,
    always_load: bool = True,
    max_result_chars: int | None = None,
    meta: Mapping[str, object] | None = None,
    annotations: Mapping[str, object] | None = None,
    read_only: bool | None = None,
    timeout: float | None = None,
) -> Any:
    """Make a tool of a function: ``@tool``, or ``@tool(read_only=True)``.

    The name is the function's; the description is its docstring, from which what it says of
    parameters (Google, NumPy or Sphinx style) goes to the parameters. The schema comes from the
    annotations, which also decide what arguments are accepted: JSON's own types, ``Literal``,
    enums, lists, dicts, dataclasses, ``TypedDict``, msgspec structs, pydantic models, unions, and
    ``Annotated`` with ``msgspec.Meta`` or a text. Every parameter needs an annotation, ``Any`` if
    need be; one with a default is optional; one annotated :class:`ToolContext` is injected.

    An ``async def`` runs on the event loop, a plain ``def`` in a thread. The result may be text,
    anything that can be written as JSON, the bytes of a PNG, JPEG, GIF or WebP image, a content
    block, a list of blocks, or a whole MCP result (``{"content": [...]}``). Raise `ToolFailure`
    to tell the model what went wrong; of any other exception it reads one line.

    Args:
        name: What the model calls it, if not by the function's name.
        description: What the model reads about it, if not the docstring.
        schema: Shown to the model instead of the one from the annotations. Parameters need no
            annotation then, and ``**arguments`` takes what has no parameter of its own; what is
            annotated is still checked, the rest is passed on as the model wrote it.
        always_load: Whether the tool is in the model's tool list from the start. With False the
            CLI may hide it behind its tool search: the model reads the name and has to ask for
            the rest. Use it for tools that are seldom needed.
        max_result_chars: Characters of a result that the CLI passes on to the model. A longer
            result goes to a file of which the model reads the beginning. Without it the limit is
            the CLI's own, about 50,000; the CLI treats more than 500,000 as 500,000.
        meta: More entries for the tool's ``_meta``, such as ``{"anthropic/searchHint": "…"}``.
        annotations: Hints in MCP's own words, such as ``{"destructiveHint": False}``.
        read_only: That the tool changes nothing. The CLI runs such calls in parallel.
        timeout: Seconds a call may take; the model is told if it takes longer.

    Raises:
        OptionsError: It cannot work as a tool; the text names the parameter and the fix.
    """

    def make(function: object) -> Tool[..., Any]:
        known = _name(function, name)
        field = f"tool {known}"
        shown = None if schema is None else json_object(f"{field}: schema", schema)
        signature = read_signature(
            cast("Callable[..., Any]", function), known, context=ToolContext, schema=shown
        )
        said = signature.description if description is None else description
        return Tool(
            cast("Callable[..., Any]", function),
            signature,
            name=known,
            description=text(f"{field}: description", said),
            annotations=_annotations(field, annotations, read_only),
            meta=_meta(field, meta, always_load, max_result_chars),
            timeout=None if timeout is None else positive(f"{field}: timeout", timeout),
        )

    return make if function is None else make(function)


def _name(function: object, name: str | None) -> str:
    if not callable(function) or isinstance(function, type):
        fix = "Decorate a function; staticmethod and classmethod go on the outside."
        raise OptionsError("tool", f"is not a function but {function!r:.60}", fix=fix)
    given = getattr(function, "__name__", None) if name is None else name
    if given is None:
        fix = "Give one: tool(function, name=...)."
        raise OptionsError("tool", f"has no name: {function!r:.60}", fix=fix)
    return cast("str", _tool_name("tool name", given))


def _annotations(
    field: str,
    given: Mapping[str, object] | None,
    read_only: bool | None,  # noqa: FBT001  # private; the names are those of `tool`
) -> Mapping[str, object]:
    kept = dict(json_object(f"{field}: annotations", given or {}))
    if read_only is not None:
        hint = boolean(f"{field}: read_only", read_only)
        if kept.setdefault("readOnlyHint", hint) is not hint:
            fix = "Leave one of them out."
            raise OptionsError(f"{field}: read_only", "contradicts readOnlyHint", fix=fix)
    return MappingProxyType(kept)


# The keys of `_meta` that the CLI reads, and the arguments of `tool` that set them.
_ALWAYS_LOAD = "anthropic/alwaysLoad"
_MAX_RESULT = "anthropic/maxResultSizeChars"
_ARGUMENTS = {_ALWAYS_LOAD: "always_load", _MAX_RESULT: "max_result_chars"}


def _meta(
    field: str,
    given: Mapping[str, object] | None,
    always_load: bool,  # noqa: FBT001  # private; the names are those of `tool`
    max_result_chars: int | None,
) -> Mapping[str, object]:
    kept = dict(json_object(f"{field}: meta", given or {}))
    for key, argument in _ARGUMENTS.items():
        if key in kept:
            fix = f"Set it with tool({argument}=...)."
            raise OptionsError(f"{field}: meta", f"must not have the key {key!r}", fix=fix)
    if boolean(f"{field}: always_load", always_load):
        kept[_ALWAYS_LOAD] = True
    if max_result_chars is not None:
        kept[_MAX_RESULT] = _size(f"{field}: max_result_chars", max_result_chars)
    return MappingProxyType(kept)


# ---------------------------------------------------------------- a server of tools


class ToolServer:
    """Tools under one name: ``BidirOptions(mcp_servers={"calc": ToolServer([add])})``.

    Functions that are no tools yet become ones. The model calls them ``mcp__calc__add``. A server
    keeps no state of a session, so any number of sessions may share one.
    """

    def __init__(
        self,
        tools: Iterable[Tool[..., Any] | Callable[..., Any]],
        *,
        version: str = "1.0.0",
        instructions: str | None = None,
    ) -> None:
        found: dict[str, Tool[..., Any]] = {}
        if not isinstance(cast("object", tools), Iterable):
            raise OptionsError("tools", f"is {tools!r:.80}", fix="Give a list: ToolServer([...]).")
        for given in tools:
            one = cast("Tool[..., Any]", given) if isinstance(given, Tool) else tool(given)
            if one.is_method:
                fix = f"Give it from an instance: obj.{one.name}."
                raise OptionsError(f"tool {one.name}", "is a method without its object", fix=fix)
            if one.name in found:
                fix = "Give one of them another name: tool(function, name=...)."
                raise OptionsError("tools", f"has two tools named {one.name!r}", fix=fix)
            found[one.name] = one
        #: The tools by name, in order.
        self.tools: Mapping[str, Tool[..., Any]] = MappingProxyType(found)
        self.version = line("version", version)
        #: What the model is told about the server as a whole.
        self.instructions = None if instructions is None else text("instructions", instructions)
        self._definitions = [one.definition() for one in found.values()]

    def __repr__(self) -> str:
        return f"<ToolServer {', '.join(self.tools)}>"

    def definitions(self) -> list[JsonObject]:
        """The entries of MCP's ``tools/list``; made once, so not to be changed."""
        return self._definitions


# ---------------------------------------------------------------- raw handlers


class McpError(Struct, frozen=True):
    """A JSON-RPC error object."""

    code: int
    message: str
    data: object | None = None


class McpResponse(Struct, frozen=True, kw_only=True):
    """The answer of a raw MCP handler, for those who prefer a record to a dictionary.

    ``id`` is the request's id as the request spelled it: a number stays a number. Give ``result``
    or ``error``; with an error the result is not sent.
    """

    id: str | int | None = None
    result: Mapping[str, object] | None = None
    error: McpError | None = None

    def to_wire(self) -> dict[str, object]:
        """The JSON-RPC message this record stands for."""
        wire: dict[str, object] = {"jsonrpc": "2.0", "id": self.id}
        if self.error is None:
            wire["result"] = {} if self.result is None else self.result
            return wire
        error: dict[str, object] = {"code": self.error.code, "message": self.error.message}
        if self.error.data is not None:
            error["data"] = self.error.data
        wire["error"] = error
        return wire
