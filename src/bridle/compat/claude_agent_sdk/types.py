"""All types of the official SDK, as its module ``types`` has them."""

from bridle.compat.claude_agent_sdk import (
    _agent_options,
    _config_types,
    _control_types,
    _hook_types,
    _message_types,
    _permission_types,
    _session_types,
)
from bridle.compat.claude_agent_sdk._agent_options import *
from bridle.compat.claude_agent_sdk._config_types import *
from bridle.compat.claude_agent_sdk._control_types import *
from bridle.compat.claude_agent_sdk._hook_types import *
from bridle.compat.claude_agent_sdk._message_types import *
from bridle.compat.claude_agent_sdk._permission_types import *
from bridle.compat.claude_agent_sdk._session_types import *

__all__: list[str] = []
__all__ += _agent_options.__all__
__all__ += _config_types.__all__
__all__ += _control_types.__all__
__all__ += _hook_types.__all__
__all__ += _message_types.__all__
__all__ += _permission_types.__all__
__all__ += _session_types.__all__
