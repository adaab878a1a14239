"""How much an object holds, seen from outside: no attribute of it is named."""

from __future__ import annotations

import gc
from collections import deque
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType

_CONTAINERS = (list, dict, set, deque)
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, FrameType)
_ATOMS = (str, bytes, int, float)


def largest_container(root: object) -> int:
    """Return the number of entries of the largest container that can be reached from `root`."""
    largest = 0
    seen = {id(root)}
    reached: list[object] = [root]
    while reached:
        one = reached.pop()
        if isinstance(one, _CONTAINERS):
            largest = max(largest, len(one))
        for other in gc.get_referents(one):
            if id(other) not in seen and not isinstance(other, _CODE + _ATOMS):
                seen.add(id(other))
                reached.append(other)
    return largest
