"""Options are a plain record that can be copied and changed."""

import dataclasses

from claude_agent_sdk import ClaudeAgentOptions

options = ClaudeAgentOptions(model="opus", allowed_tools=["Read"])
options.max_turns = 3
other = dataclasses.replace(options, model="sonnet")
print(options.model, other.model, other.max_turns, other.allowed_tools == ["Read"])
for one in dataclasses.fields(ClaudeAgentOptions):
    if one.name != "debug_stderr":
        print(one.name, repr(getattr(ClaudeAgentOptions(), one.name)))
