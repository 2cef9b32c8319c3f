"""What a line of the table of methods refers to."""

import dataclasses
from typing import Any, NamedTuple

from soundspot.model.methods.method import Method


class MethodSpec(NamedTuple):
    """A method's dataclass of switches, and the module that takes it."""

    config: type[Any]
    module: type[Method]


def read_method(_name: str, found: object) -> MethodSpec:
    """Check that a line leads to a method."""
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise TypeError(f"{found!r} is not a subclass of Method")
    config = getattr(found, "config_class", None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise TypeError(f"{found.__name__}.config_class must be a dataclass, not {config!r}")
    return MethodSpec(config, found)
