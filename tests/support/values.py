"""Values that users return, and that are hard on whoever gets them."""

from __future__ import annotations


def _absent(_: object) -> type:
    raise RuntimeError("outside of a request")


Lazy: type = type("Lazy", (), {"__class__": property(_absent)})
"""Stands for another object, as proxies do, and fails when there is none."""
