"""MCP servers in the client: the handshake with each, and calls of their tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .payloads import MCP_VERSION
from .values import Json, as_object, is_list, is_object

if TYPE_CHECKING:
    from .talk import Talk

PARKED = "parked"
LOST = "The tool call was interrupted before a result was received."


class Servers:
    """The MCP servers of the client, by name."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._servers: dict[str, Json] = {}
        # The step of the handshake of each open request.
        self._steps: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        """True if no handshake is running. The first turn waits for that."""
        return all(server["status"] != "pending" for server in self._servers.values())

    def connect(self, names: list[str], manifests: Json | None = None) -> None:
        """Connect new servers: with what their manifests say, or else by a handshake."""
        for name in names:
            if name in self._servers:
                continue
            server: Json = {"name": name, "status": "pending", "tools": [], "next": 2}
            self._servers[name] = server
            manifest = as_object((manifests or {}).get(name))
            listed = as_object(manifest.get("toolsListResult"))
            if judge_manifest(manifest) != PARKED or (listed and not _are_tools(listed)):
                self._ask(name, "initialize", self._talk.frames.mcp_initialize())
                continue
            server["info"] = manifest["initializeResult"].get("serverInfo", {})
            if listed:
                server.update(tools=listed["tools"], status="connected")
            else:
                self.refresh(name)

    def disconnect(self, names: list[str]) -> None:
        """Remove these servers."""
        for name in names:
            del self._servers[name]

    def give_up(self) -> None:
        """End all handshakes, because the client is gone."""
        for server in self._servers.values():
            if server["status"] == "pending":
                server["status"] = "failed"

    def __contains__(self, name: object) -> bool:
        return name in self._servers

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def _ask(self, name: str, step: str, message: Json) -> None:
        question = self._talk.frames.mcp_message(name, message)
        self._steps[question["request_id"]] = step
        self._talk.put(question)

    def on_answer(self, question: Json, response: Json) -> bool:
        """Continue a handshake. Return False if the response belongs to something else."""
        step = self._steps.pop(question["request_id"], None)
        if step is None:
            return False
        name: str = question["request"]["server_name"]
        server = self._servers.get(name)
        answer = _unwrapped(response)
        if server is None or answer is None:
            return True
        if step == "initialize" and "error" in answer:
            server["status"] = "failed"
        elif step == "initialize":
            server["info"] = answer["result"].get("serverInfo", {})
            message: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            self._ask(name, "initialized", message)
        elif step == "initialized":
            self._list_tools(name)
        elif step == "tools":
            server["tools"] = answer.get("result", {}).get("tools", [])
            server["status"] = "connected"
        return True

    def refresh(self, name: object) -> None:
        """Read the tools of a server again, because it reported a change."""
        if isinstance(name, str) and name in self._servers:
            self._list_tools(name)

    def _list_tools(self, name: str) -> None:
        number = self._talk.frames.rpc_id(1)
        self._ask(name, "tools", {"method": "tools/list", "jsonrpc": "2.0", "id": number})

    def call(self, tool: str, arguments: Json, tool_use_id: str) -> tuple[Any, bool]:
        """Call a tool. Return its content, and whether it is an error."""
        name, _, short = tool.removeprefix("mcp__").partition("__")
        server = self._servers.get(name)
        if server is None or server["status"] != "connected":
            return f"MCP server not connected: {name}", True
        if self._talk.is_closed():
            return LOST, True
        number, server["next"] = server["next"], server["next"] + 1
        params = {
            "name": short,
            "arguments": arguments,
            "_meta": {"claudecode/toolUseId": tool_use_id, "progressToken": number},
        }
        message = {
            "method": "tools/call",
            "params": params,
            "jsonrpc": "2.0",
            "id": self._talk.frames.rpc_id(number),
        }
        (response,) = self._talk.ask(self._talk.frames.mcp_message(name, message))
        if response is None:
            return LOST, True
        if response["subtype"] == "error":
            return str(response.get("error")), True
        answer = _unwrapped(response) or {}
        if "error" in answer:
            return str(answer["error"].get("message")), True
        result = answer.get("result", {})
        return result.get("content", []), bool(result.get("isError"))

    def cancel(self, question: Json) -> None:
        """Tell a server that a call was cancelled."""
        message: Json = question["request"]["message"]
        if message.get("method") == "tools/call":
            del self._talk.open[question["request_id"]]
            params = {"requestId": message["id"], "reason": "AbortError: remote-cancel"}
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            self._ask(question["request"]["server_name"], "cancelled", note)

    # -- reports about the servers -----------------------------------------------------------------

    def tool_names(self) -> list[str]:
        """Return the names of their tools, as the model knows them."""
        return [
            f"mcp__{server['name']}__{tool['name']}"
            for server in self._servers.values()
            for tool in server["tools"]
        ]

    def told(self) -> list[Json]:
        """Return the servers for the init message of a turn."""
        return [
            {"name": server["name"], "status": server["status"], "source": "sdk"}
            for server in self._servers.values()
        ]

    def status(self) -> list[Json]:
        """Return the servers for the response to mcp_status."""
        fit = self._talk.frames.fit
        return [
            fit(
                "mcp_status",
                {
                    "name": server["name"],
                    "status": server["status"],
                    "serverInfo": server.get("info", {}),
                    "transport": "sdk",
                    "scope": "dynamic",
                    "source": "sdk",
                    "tools": [{"name": t["name"], "annotations": {}} for t in server["tools"]],
                },
            )
            for server in self._servers.values()
        ]


def judge_manifest(manifest: object) -> str:
    """Return what the response to initialize says about the manifest of a server."""
    introduction = as_object(manifest).get("initializeResult")
    if not is_object(introduction):
        return "malformed"
    is_known = introduction.get("protocolVersion") == MCP_VERSION
    return PARKED if is_known else "protocol_version_mismatch"


def _are_tools(listed: Json) -> bool:
    tools = listed.get("tools")
    return is_list(tools) and all("name" in as_object(one) for one in tools)


def _unwrapped(response: Json) -> Json | None:
    """Return the JSON-RPC response; None if it is invalid, which the CLI ignores."""
    if response["subtype"] == "error":
        return {"error": {"message": response.get("error")}}
    return as_object(as_object(response.get("response")).get("mcp_response")) or None
