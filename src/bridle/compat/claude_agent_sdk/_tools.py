"""`tool` and `create_sdk_mcp_server`: functions of the program that the model can call."""

from __future__ import annotations

import copy
import importlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Generic, Self, TypeVar, cast

import bridle.tools
from bridle._spi import protocol_server
from bridle.compat.claude_agent_sdk._callbacks import settled
from bridle.compat.claude_agent_sdk._loops.bridge import AsyncioBridge, Bridge
from bridle.compat.claude_agent_sdk._schemas import input_schema as schema_of
from bridle.compat.claude_agent_sdk._types.config_types import McpSdkServerConfig
from bridle.errors import ToolFailure
from bridle.messages import JsonObject

T = TypeVar("T")

_log = logging.getLogger("bridle.mcp")

_END: Any = object()
"""What a stream of an MCP server yields at its end."""

_HINTS = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
    "max_result_size_chars": "maxResultSizeChars",
}


class ToolAnnotations:
    """What a tool says about itself. Every hint may be given in camelCase or in snake_case."""

    def __init__(
        self,
        *,
        title: str | None = None,
        readOnlyHint: bool | None = None,  # noqa: N803  # the names of MCP
        destructiveHint: bool | None = None,  # noqa: N803
        idempotentHint: bool | None = None,  # noqa: N803
        openWorldHint: bool | None = None,  # noqa: N803
        maxResultSizeChars: int | None = None,  # noqa: N803
        **data: Any,
    ) -> None:
        given: dict[str, Any] = {
            "title": title,
            "readOnlyHint": readOnlyHint,
            "destructiveHint": destructiveHint,
            "idempotentHint": idempotentHint,
            "openWorldHint": openWorldHint,
            "maxResultSizeChars": maxResultSizeChars,
        }
        for name, value in data.items():
            wire = _HINTS.get(name, name)
            if given.get(wire) is None:
                given[wire] = value
        self._given = given

    def __getattr__(self, name: str) -> Any:
        given = self.__dict__.get("_given", {})
        wire = _HINTS.get(name, name)
        if wire not in given:
            raise AttributeError(f"ToolAnnotations has no attribute {name!r}")
        return given[wire]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolAnnotations) and self._given == other._given

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._given.items())
        return f"ToolAnnotations({shown})"

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the annotations by their names in MCP."""
        omits = options.get("exclude_none", False)
        return {name: one for name, one in self._given.items() if one is not None or not omits}

    def model_dump_json(self, **options: Any) -> str:
        """Return the annotations as JSON, by their names in MCP."""
        separators = None if options.get("indent") else (",", ":")
        dumped = self.model_dump(**options)
        return json.dumps(dumped, indent=options.get("indent"), separators=separators)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, with the values of ``update``."""
        given = {
            **self._given,
            **{_HINTS.get(name, name): one for name, one in (update or {}).items()},
        }
        return type(self)(**(copy.deepcopy(given) if deep else given))

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """Return annotations made from a mapping, or from annotations."""
        given: dict[str, Any] = (
            dict(cast("Mapping[str, Any]", obj))
            if isinstance(obj, Mapping)
            else obj.model_dump(by_alias=True)
        )
        return cls(**given)


@dataclass
class SdkMcpTool(Generic[T]):
    """A tool: its description and the function that runs it. Made by `tool`."""

    name: str
    description: str
    input_schema: type[T] | dict[str, Any]
    handler: Callable[[T], Awaitable[dict[str, Any]]]
    annotations: Any | None = None


def tool(
    name: str,
    description: str,
    input_schema: type | dict[str, Any],
    annotations: Any | None = None,
) -> Callable[[Callable[[Any], Awaitable[dict[str, Any]]]], SdkMcpTool[Any]]:
    """Return a decorator that makes a tool of an async function with one dict as its argument.

    Args:
        name: the name of the tool.
        description: what the model reads about it.
        input_schema: a mapping from parameter name to type, a TypedDict, a dataclass, a pydantic
            model, or a JSON schema.
        annotations: `ToolAnnotations`, those of the ``mcp`` package, or None.
    """

    def decorate(handler: Callable[[Any], Awaitable[dict[str, Any]]]) -> SdkMcpTool[Any]:
        return SdkMcpTool(name, description, input_schema, handler, annotations)

    return decorate


def create_sdk_mcp_server(
    name: str, version: str = "1.0.0", tools: list[SdkMcpTool[Any]] | None = None
) -> McpSdkServerConfig:
    """Return an MCP server in this process, for ``ClaudeAgentOptions.mcp_servers``."""
    return McpSdkServerConfig(type="sdk", name=name, instance=SdkServer(name, version, tools or []))


class SdkServer(bridle.tools.ToolServer):
    """The tools of one `create_sdk_mcp_server`, as a tool server of Bridle."""

    def __init__(
        self,
        name: str,
        version: str,
        tools: list[SdkMcpTool[Any]],
        bridge: Bridge | None = None,
    ) -> None:
        self.name = name
        self._sdk_tools = tools
        runs_in = bridge or AsyncioBridge()
        by_name = {one.name: one for one in tools}  # the last of the same name counts
        super().__init__([_native(one, runs_in) for one in by_name.values()], version=version)

    def bridged(self, bridge: Bridge) -> SdkServer:
        """Return the server with tools that run in the event loop of the program."""
        return SdkServer(self.name, self.version, self._sdk_tools, bridge)


def bridged_server(server: object, bridge: Bridge) -> object:
    """Return a server whose code runs in the event loop of the program."""
    if isinstance(bridge, AsyncioBridge):
        return server
    if isinstance(server, SdkServer):
        return server.bridged(bridge)
    inner = protocol_server(server)
    return server if inner is None else _BridgedServer(inner, bridge)


class _BridgedServer:
    """A server object of the ``mcp`` package that runs in the event loop of the program."""

    def __init__(self, server: Any, bridge: Bridge) -> None:
        self._server = server
        self._bridge = bridge

    def create_initialization_options(self) -> object:
        """Return what the server says about itself."""
        return self._server.create_initialization_options()

    async def run(self, inbox: Any, outbox: Any, options: object) -> None:
        """Serve until the inbox ends. The two streams belong to the loop of Bridle."""
        reader, writer = _Reader(inbox, self._bridge), _Writer(outbox, self._bridge)

        async def serve() -> None:
            await self._server.run(reader, writer, options)

        await self._bridge.callback(serve)()


class _BridgedStream:
    """A stream of an MCP server, for the event loop of the program."""

    def __init__(self, stream: Any, bridge: Bridge) -> None:
        self._stream = stream
        self._bridge = bridge

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Do nothing: Bridle closes the stream."""


class _Reader(_BridgedStream):
    """The messages for the server."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> object:
        message = await self._bridge.run(self._take)
        if message is _END:
            raise StopAsyncIteration
        return message

    async def _take(self) -> object:
        return await anext(self._stream, _END)


class _Writer(_BridgedStream):
    """The messages of the server."""

    async def send(self, item: object) -> None:
        """Pass a message on."""
        await self._bridge.run(lambda: self._stream.send(item))


def _native(one: SdkMcpTool[Any], bridge: Bridge) -> bridle.tools.Tool[..., Any]:
    schema = schema_of(one.input_schema)
    problem_in = _validator(schema)

    async def handle(arguments: JsonObject) -> Any:
        return await settled(one.handler(arguments))

    # Under asyncio the function of the user is called without another coroutine around it.
    call = one.handler if isinstance(bridge, AsyncioBridge) else bridge.callback(handle)

    async def run(**arguments: Any) -> object:
        if problem := problem_in(arguments):
            return ToolFailure(f"Input validation error: {problem}")
        try:
            given: object = call(arguments)
            return _result(await given if type(given) is CoroutineType else await settled(given))
        except Exception as error:  # raised by the tool of the user
            return ToolFailure(str(error))

    hints: dict[str, Any] = (
        {}
        if one.annotations is None
        else one.annotations.model_dump(by_alias=True, exclude_none=True)
    )
    size = hints.pop("maxResultSizeChars", None)
    return bridle.tools.tool(
        run,
        name=one.name,
        description=one.description,
        schema=schema,
        always_load=False,
        max_result_chars=size,
        annotations=hints,
    )


def _validator(schema: JsonObject) -> Callable[[JsonObject], str | None]:
    """Return a function that returns what is wrong with arguments, or None.

    Arguments are checked if ``jsonschema`` is installed, which ``mcp`` brings along.
    """
    try:
        jsonschema: Any = importlib.import_module("jsonschema")
    except ImportError:
        return lambda arguments: None
    validator: Any = jsonschema.validators.validator_for(schema)(schema)
    plain = _plain_types(schema)
    required = frozenset(schema.get("required", ()))

    def problem(arguments: JsonObject) -> str | None:
        # The usual case, without the general validator, which is slow.
        if plain is not None and required <= arguments.keys():
            for name, value in arguments.items():
                if type(value) not in plain.get(name, ()):
                    break
            else:
                return None
        if validator.is_valid(arguments):
            return None
        best = jsonschema.exceptions.best_match(validator.iter_errors(arguments))
        return str(best.message)

    return problem


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
}


def _plain_types(schema: JsonObject) -> dict[str, tuple[type, ...]] | None:
    """Return the types of the parameters, or None if the schema says more than types."""
    properties: dict[str, JsonObject] = schema.get("properties", {})
    if schema.get("type") != "object" or schema.keys() - {"type", "properties", "required"}:
        return None
    if any(one.keys() - {"type", "description"} for one in properties.values()):
        return None
    return {name: _TYPES.get(one.get("type", ""), ()) for name, one in properties.items()}


# ---------------------------------------------------------------- results


def _result(given: Any) -> JsonObject:
    """Return the MCP result for what a tool returned."""
    items: list[JsonObject] = given.get("content") or []
    result: JsonObject = {"content": [one for item in items if (one := _content(item)) is not None]}
    return {**result, "isError": True} if given.get("is_error") else result


def _content(item: JsonObject) -> JsonObject | None:
    """Return the content that the CLI takes. Links and text resources become text.

    Returns None for any other kind of content, which is dropped with a warning. Raises KeyError or
    TypeError if a text or an image is incomplete.
    """
    kind = item.get("type")
    if kind == "text":
        return {"type": "text", "text": _text(item, "text")}
    if kind == "image":
        data, mime_type = _text(item, "data"), _text(item, "mimeType")
        return {"type": "image", "data": data, "mimeType": mime_type}
    if kind == "resource_link":
        parts = (item.get(name) for name in ("name", "uri", "description"))
        text = "\n".join(str(part) for part in parts if part) or "Resource link"
        return {"type": "text", "text": text}
    resource: JsonObject = item.get("resource") or {}
    if kind == "resource" and "text" in resource:
        return {"type": "text", "text": _text(resource, "text")}
    what = "a binary resource" if kind == "resource" else f"content of type {kind!r:.40}"
    _log.warning("a tool returned %s, which is dropped; return text or an image", what)
    return None


def _text(item: JsonObject, name: str) -> str:
    text: object = item[name]
    if not isinstance(text, str):
        raise TypeError(f"{name} is {type(text).__name__}, not a string")
    return text
