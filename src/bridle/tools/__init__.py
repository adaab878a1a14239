"""In-process tools: functions of your program that the model can call.

``@tool`` turns a function into a :class:`Tool`. :class:`ToolServer` is an MCP server that offers
tools. To handle MCP messages yourself, register a function that takes a message and returns a
mapping or an :class:`McpResponse`.

This module only describes tools, and checks them when they are created. The core implements the MCP
protocol, and the shell calls the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

import msgspec
from msgspec import Struct

from bridle._records.fields import boolean, integer, json_object, line, matching, positive, text
from bridle._records.raw_line import JsonObject
from bridle.errors import OptionsError, ToolFailure
from bridle.permissions import Withdrawable
from bridle.tools._signatures import Signature, read_signature

__all__ = ["McpError", "McpResponse", "Tool", "ToolContext", "ToolServer", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

_tool_name = matching(r"[A-Za-z0-9_-]{1,64}", "1 to 64 letters, digits, '-' or '_'")
_size = integer(1)

# ---------------------------------------------------------------- contexts


class _Keyed(Withdrawable):
    """Base class of the context of a tool call: it has the key of the call."""

    __slots__ = ("_key",)

    _key: str


class ToolContext(_Keyed, Struct, frozen=True, kw_only=True):
    """The context of a tool call. To receive it, annotate a parameter with this type.

    The model does not see that parameter. `cancelled`, `wait_cancelled()` and
    `wait_cancelled_sync()` tell whether the CLI has cancelled the call. Bridle then cancels an
    ``async def`` tool. A plain ``def`` tool runs on, so it should check `cancelled` if it takes
    long. `raw` is the JSON-RPC request.
    """

    #: Name of the tool, and the name under which its server is registered.
    name: str
    server: str = ""
    #: Id of the model's `ToolUseBlock`, or None if the CLI did not send it.
    tool_use_id: str | None = None
    #: Session that the call belongs to; with `bridle.sync` the blocking session. None in a context
    #: that a test creates, in a deep copy and in a pickle.
    session: Any = None

    @property
    def idempotency_key(self) -> str:
        """Return a key that identifies this call: the same one if a recovery repeats the call.

        Pass it to services that do the same thing only once for a key, or look it up in your own
        database before you change something. Two calls that the model makes on purpose have
        different keys, even if their arguments are equal.

        A call is repeated with the same key if the model makes it again, with the same arguments,
        after a crash cut it off. This needs a session with a store, or ``run`` with ``retry``.
        """
        key: str | None = getattr(self, "_key", None)
        if key is None:
            session_id = getattr(self.session, "id", None)
            key = key_of_call(session_id or "", self.tool_use_id or "")
        return key

    def __reduce__(self) -> tuple[Any, ...]:
        again, (kind, values, slots) = Withdrawable.__reduce__(self)
        slots = {**slots, "_key": self.idempotency_key}
        return again, (kind, {**values, "session": None}, slots)


class NotBound:
    """In place of the session of a context until `bind_session` is called.

    A class, because the garbage collector follows a struct only if one of the values that the
    struct was created with may refer to others. Otherwise a context would keep its session for
    ever.
    """


def bind_session(context: ToolContext, session: object) -> None:
    """Set the session of a context. Call it before the tool gets the context."""
    msgspec.structs.force_setattr(context, "session", session)


#: Set the idempotency key of a context. Call it before the tool gets the context.
bind_key: Callable[[ToolContext, str], None] = _Keyed.__dict__["_key"].__set__


def key_of_call(*parts: object) -> str:
    """Return an idempotency key that is made from these JSON values."""
    from hashlib import sha256  # slow to import, and few programs use keys

    return sha256(msgspec.json.encode(parts)).hexdigest()[:32]


# ---------------------------------------------------------------- tools


class Tool(Generic[P, R]):
    """A function and the description that the model reads. Created by :func:`tool`.

    Calling a Tool calls the function.
    """

    def __init__(
        self,
        function: Callable[P, R],
        signature: Signature,
        *,
        name: str,
        description: str,
        ask: bool,
        approval: bool,
        annotations: Mapping[str, object],
        meta: Mapping[str, object],
        timeout: float | None,
    ) -> None:
        self.function = function
        self.name = name
        self.description = description
        #: True if the CLI asks for permission before every call, even if a rule allows the tool.
        self.ask = ask
        #: True if every call waits until a person has decided with ``Agent.resume``.
        self.approval = approval
        #: MCP tool annotations, such as ``{"readOnlyHint": True}``.
        self.annotations = annotations
        #: The ``_meta`` object of the tool in the server's tool list.
        self.meta = meta
        #: Timeout of a call in seconds; None means no timeout.
        self.timeout = timeout
        self._signature = signature
        self.__doc__ = function.__doc__
        self.__wrapped__ = function  # so that `inspect.signature()` and `help()` show the function

    @property
    def input_schema(self) -> JsonObject:
        """Return the JSON schema of the arguments."""
        return self._signature.schema

    @property
    def is_method(self) -> bool:
        """Return True for a method that is not yet bound to an instance."""
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
        """Bind a tool that is defined in a class to an instance, as for a method."""
        if instance is None or not self.is_method:
            return self
        method = cast("Any", self.function).__get__(instance, owner)
        return Tool(
            cast("Callable[..., R]", method),
            msgspec.structs.replace(self._signature, unbound=False),
            name=self.name,
            description=self.description,
            ask=self.ask,
            approval=self.approval,
            annotations=self.annotations,
            meta=self.meta,
            timeout=self.timeout,
        )

    def definition(self) -> JsonObject:
        """Return the entry of this tool in MCP's ``tools/list``."""
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
        """Convert the model's arguments to keyword arguments of the function.

        The types are those of JSON: a number in quotes is a string. Unknown arguments are rejected.

        Raises:
            ToolFailure: an argument is invalid. The text names it, so that the model can try again.
        """
        try:
            return self._signature.convert(arguments)
        except ValueError as error:
            raise ToolFailure(f"Invalid arguments for {self.name}: {error}.") from error

    def run(self, arguments: JsonObject, context: ToolContext) -> object:
        """Call the function with validated arguments and, if it takes one, the context."""
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
    ask: bool = False,
    approval: bool = False,
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
    ask: bool = False,
    approval: bool = False,
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
    ask: bool = False,
    approval: bool = False,
    always_load: bool = True,
    max_result_chars: int | None = None,
    meta: Mapping[str, object] | None = None,
    annotations: Mapping[str, object] | None = None,
    read_only: bool | None = None,
    timeout: float | None = None,
) -> Any:
    """Turn a function into a tool: ``@tool``, or ``@tool(read_only=True)``.

    The tool has the name of the function. Its description is the docstring; the docstring's
    parameter sections (Google, NumPy or Sphinx style) describe the parameters. The schema is made
    from the annotations, and Bridle checks arguments against them. Supported types: JSON types,
    ``Literal``, enums, lists, dicts, dataclasses, ``TypedDict``, msgspec structs, pydantic models,
    unions, and ``Annotated`` with ``msgspec.Meta`` or a text. Every parameter needs an annotation;
    ``Any`` accepts everything. A parameter with a default is optional. A parameter annotated with
    :class:`ToolContext` receives the context.

    An ``async def`` function runs on the event loop, a plain ``def`` function in a thread. It can
    return text, any JSON value, the bytes of a PNG, JPEG, GIF or WebP image, a content block, a
    list of blocks, or a whole MCP result (``{"content": [...]}``, with ``"isError": True`` if the
    call failed). Raise `ToolFailure` to tell the model what went wrong. Of any other exception the
    model reads the class, and the application gets the traceback.

    Args:
        name: name of the tool. Default: the name of the function.
        description: description for the model. Default: the docstring.
        schema: JSON schema to show to the model in place of the generated one. Parameters then
            need no annotation, and ``**arguments`` receives arguments that have no parameter.
            Bridle checks annotated parameters, and passes the others as the model sent them.
        ask: True if the CLI must ask for permission before every call, even if ``allowed_tools``,
            a settings file or the permission mode allows the tool. ``on_can_use_tool`` answers;
            without this callback the call is denied.
        approval: True if every call must wait for a person. The turn ends as ``tool_deferred``, and
            ``Agent.resume`` decides. The call runs in no other way.
        always_load: whether the tool is in the model's tool list from the start (the default).
            With False the CLI may show only its name until the model searches for it. Use False
            for tools that are rarely needed.
        max_result_chars: maximum number of characters of a result that the CLI passes to the
            model. The CLI writes a longer result to a file, and the model reads its beginning.
            Default: the CLI's limit of about 50,000. The maximum is 500,000.
        meta: more entries for the tool's ``_meta``, such as ``{"anthropic/searchHint": "…"}``.
        annotations: MCP tool annotations, such as ``{"destructiveHint": False}``.
        read_only: True if the tool changes nothing. The CLI runs several calls of one message at
            the same time only for such tools, and other calls one after another.
        timeout: timeout of a call in seconds. After it, the model reads that the call timed out.
            Default: no timeout.

    Raises:
        OptionsError: the function or an argument is invalid. The text names the parameter.
    """

    def make(function: object) -> Tool[..., Any]:
        known = _name(function, name)
        field = f"tool {known}"
        shown = None if schema is None else json_object(f"{field}: schema", schema)
        signature = read_signature(
            cast("Callable[..., Any]", function), known, context=ToolContext, schema=shown
        )
        shown_text = signature.description if description is None else description
        return Tool(
            cast("Callable[..., Any]", function),
            signature,
            name=known,
            description=text(f"{field}: description", shown_text),
            ask=boolean(f"{field}: ask", ask),
            approval=boolean(f"{field}: approval", approval),
            annotations=_annotations(field, annotations, read_only),
            meta=_meta(field, meta, ask, always_load, max_result_chars),
            timeout=None if timeout is None else positive(f"{field}: timeout", timeout),
        )

    return make if function is None else make(function)


def _name(function: object, name: str | None) -> str:
    if not callable(function) or isinstance(function, type):
        fix = "Decorate a function. Put @staticmethod or @classmethod above @tool."
        raise OptionsError("tool", f"must be a function, got {function!r:.60}", fix=fix)
    given = getattr(function, "__name__", None) if name is None else name
    if given is None:
        fix = "Set a name: tool(function, name=...)."
        raise OptionsError("tool", f"is {function!r:.60}, which has no name", fix=fix)
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
            fix = "Set only one of them."
            raise OptionsError(f"{field}: read_only", "contradicts readOnlyHint", fix=fix)
    return MappingProxyType(kept)


# The keys of `_meta` that the CLI reads, and the arguments of `tool` that set them.
_ALWAYS_LOAD = "anthropic/alwaysLoad"
_MAX_RESULT = "anthropic/maxResultSizeChars"
_ASK = "anthropic/requiresUserInteraction"
_ARGUMENTS = {_ALWAYS_LOAD: "always_load", _MAX_RESULT: "max_result_chars", _ASK: "ask"}


def _meta(
    field: str,
    given: Mapping[str, object] | None,
    ask: bool,  # noqa: FBT001  # private; the names are those of `tool`
    always_load: bool,  # noqa: FBT001
    max_result_chars: int | None,
) -> Mapping[str, object]:
    kept = dict(json_object(f"{field}: meta", given or {}))
    for key, argument in _ARGUMENTS.items():
        if key in kept:
            fix = f"Set it with tool({argument}=...)."
            raise OptionsError(f"{field}: meta", f"must not have the key {key!r}", fix=fix)
    if ask:  # a second gate beside the CLI's ask rule; 2.1.197 ignores it
        kept[_ASK] = True
    if boolean(f"{field}: always_load", always_load):
        kept[_ALWAYS_LOAD] = True
    if max_result_chars is not None:
        kept[_MAX_RESULT] = _size(f"{field}: max_result_chars", max_result_chars)
    return MappingProxyType(kept)


# ---------------------------------------------------------------- tool servers


class ToolServer:
    """An MCP server that offers tools: ``BidirOptions(mcp_servers={"calc": ToolServer([add])})``.

    The model sees the tool as ``mcp__calc__add``. Several sessions can share one server: it keeps
    no session state.

    Args:
        tools: tools, or functions, which become tools.
        version: version of the server that the CLI reads.
        instructions: text about the whole server that the model reads.

    Raises:
        OptionsError: a tool is invalid, or two tools have the same name.
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
            problem = f"must be a list, got {tools!r:.80}"
            raise OptionsError("tools", problem, fix="Use a list: ToolServer([...]).")
        for given in tools:
            one = cast("Tool[..., Any]", given) if isinstance(given, Tool) else tool(given)
            if one.is_method:
                fix = f"Take it from an instance: obj.{one.name}."
                raise OptionsError(f"tool {one.name}", "is a method without an instance", fix=fix)
            if one.name in found:
                fix = "Rename one of them: tool(function, name=...)."
                raise OptionsError("tools", f"has two tools named {one.name!r}", fix=fix)
            found[one.name] = one
        #: The tools by name, in order.
        self.tools: Mapping[str, Tool[..., Any]] = MappingProxyType(found)
        self.version = line("version", version)
        #: Text about the whole server that the model reads.
        self.instructions = None if instructions is None else text("instructions", instructions)
        self._definitions = [one.definition() for one in found.values()]

    def __repr__(self) -> str:
        return f"<ToolServer {', '.join(self.tools)}>"

    def definitions(self) -> list[JsonObject]:
        """Return the entries of MCP's ``tools/list``. The list is shared: do not change it."""
        return self._definitions

    def asking(self) -> tuple[str, ...]:
        """Return the names of the tools with ``ask=True``."""
        return tuple(name for name, one in self.tools.items() if one.ask)

    def approving(self) -> tuple[str, ...]:
        """Return the names of the tools with ``approval=True``."""
        return tuple(name for name, one in self.tools.items() if one.approval)


# ---------------------------------------------------------------- raw handlers


class McpError(Struct, frozen=True):
    """A JSON-RPC error object."""

    code: int
    message: str
    data: object | None = None


class McpResponse(Struct, frozen=True, kw_only=True):
    """The response of a raw MCP handler. A handler can return this or a mapping.

    ``id`` is the id of the request, with its type: a number stays a number. Set ``result`` or
    ``error``. If ``error`` is set, ``result`` is not sent.
    """

    id: str | int | None = None
    result: Mapping[str, object] | None = None
    error: McpError | None = None

    def to_wire(self) -> dict[str, object]:
        """Return the JSON-RPC message."""
        wire: dict[str, object] = {"jsonrpc": "2.0", "id": self.id}
        if self.error is None:
            wire["result"] = {} if self.result is None else self.result
            return wire
        error: dict[str, object] = {"code": self.error.code, "message": self.error.message}
        if self.error.data is not None:
            error["data"] = self.error.data
        wire["error"] = error
        return wire
