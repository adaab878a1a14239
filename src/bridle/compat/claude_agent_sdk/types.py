"""All types of the official SDK, as its module ``types`` has them."""

from bridle.compat.claude_agent_sdk._types import agent_options as _agent_options
from bridle.compat.claude_agent_sdk._types import config_types as _config_types
from bridle.compat.claude_agent_sdk._types import control_types as _control_types
from bridle.compat.claude_agent_sdk._types import hook_types as _hook_types
from bridle.compat.claude_agent_sdk._types import message_types as _message_types
from bridle.compat.claude_agent_sdk._types import permission_types as _permission_types
from bridle.compat.claude_agent_sdk._types import session_types as _session_types
from bridle.compat.claude_agent_sdk._types.agent_options import *
from bridle.compat.claude_agent_sdk._types.config_types import *
from bridle.compat.claude_agent_sdk._types.control_types import *
from bridle.compat.claude_agent_sdk._types.hook_types import *
from bridle.compat.claude_agent_sdk._types.message_types import *
from bridle.compat.claude_agent_sdk._types.permission_types import *
from bridle.compat.claude_agent_sdk._types.session_types import *

__all__: list[str] = []
__all__ += _agent_options.__all__
__all__ += _config_types.__all__
__all__ += _control_types.__all__
__all__ += _hook_types.__all__
__all__ += _message_types.__all__
__all__ += _permission_types.__all__
__all__ += _session_types.__all__
