"""The public names of ``claude_agent_sdk`` 0.2.182, on the engine of Bridle.

To try Bridle in a program for the official SDK, change its imports to this module. For programs
whose imports cannot be changed, see `bridle.compat.install`.
"""

from bridle.compat.claude_agent_sdk import _errors, _sessions, _stores, _tools, types
from bridle.compat.claude_agent_sdk._agent_options import *
from bridle.compat.claude_agent_sdk._config_types import *
from bridle.compat.claude_agent_sdk._control_types import *
from bridle.compat.claude_agent_sdk._errors import *
from bridle.compat.claude_agent_sdk._hook_types import *
from bridle.compat.claude_agent_sdk._message_types import *
from bridle.compat.claude_agent_sdk._permission_types import *
from bridle.compat.claude_agent_sdk._session_types import *
from bridle.compat.claude_agent_sdk._sessions import *
from bridle.compat.claude_agent_sdk._stores import *
from bridle.compat.claude_agent_sdk._summaries import fold_session_summary
from bridle.compat.claude_agent_sdk._tools import *
from bridle.compat.claude_agent_sdk._transport import Transport
from bridle.compat.claude_agent_sdk._version import __version__
from bridle.compat.claude_agent_sdk.client import ClaudeSDKClient
from bridle.compat.claude_agent_sdk.query import query

__all__ = ["ClaudeSDKClient", "Transport", "__version__", "fold_session_summary", "query"]
__all__ += _errors.__all__
__all__ += _sessions.__all__
__all__ += _stores.__all__
__all__ += _tools.__all__
__all__ += types.__all__
