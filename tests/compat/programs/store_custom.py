"""A store of our own, with the two required methods, flushed at once."""

# model: [[tool_use("Read", file_path="notes.txt")], [text("Aisle 7.")]]

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, SessionStore


class Shelf(SessionStore):
    def __init__(self):
        self.books = {}

    async def append(self, key, entries):
        self.books.setdefault((key["session_id"], key.get("subpath")), []).extend(entries)

    async def load(self, key):
        return self.books.get((key["session_id"], key.get("subpath")))


async def main():
    shelf = Shelf()
    options = ClaudeAgentOptions(
        session_store=shelf, session_store_flush="eager", allowed_tools=["Read"]
    )
    async with ClaudeSDKClient(options) as client:
        await client.query("Where are the saddles?")
        async for _ in client.receive_response():
            pass
    [entries] = shelf.books.values()
    said = [one for one in entries if one["type"] in ("user", "assistant")]
    print([one["type"] for one in said])
    print(len({one["uuid"] for one in said}) == len(said))


anyio.run(main)
