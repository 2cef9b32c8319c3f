"""Methods by name: those of a table, and those that installed packages add."""

import dataclasses
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from soundspot.common.errors import SoundspotError
from soundspot.model.methods.method import Method

GROUP = "soundspot.methods"  # of the entry points that packages add methods by


class MethodSpec(NamedTuple):
    """A method's dataclass of switches, and the module that takes it."""

    config: type[Any]
    module: type[Method]


class MethodTable(Mapping[str, MethodSpec]):
    """Names of methods, and where their classes are, as "module:Class".

    A name that the lines do not have is looked for among the entry points of installed packages.
    Either is imported when it is asked for.
    """

    def __init__(self, lines: dict[str, str]) -> None:
        self.lines = lines

    def __getitem__(self, name: str) -> MethodSpec:
        """Import a method; a package's that cannot be used is refused in one sentence."""
        if name in self.lines:
            return _read_spec(EntryPoint(name, self.lines[name], GROUP).load())
        (entry, *_) = entry_points(group=GROUP, name=name) or (None,)
        if entry is None:
            raise KeyError(name)
        try:
            return _read_spec(entry.load())
        except Exception as error:  # importing a package runs its code, which may do anything
            package = f"of the package {entry.dist.name} " if entry.dist else ""
            raise SoundspotError(
                f"the method {name!r} {package}cannot be loaded from {entry.value}: {error}"
            ) from error

    def __iter__(self) -> Iterator[str]:
        """All names, without importing anything."""
        installed = (entry.name for entry in entry_points(group=GROUP))
        return iter(dict.fromkeys([*self.lines, *installed]))

    def __len__(self) -> int:
        """How many names there are."""
        return sum(1 for _ in self)


def _read_spec(found: object) -> MethodSpec:
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise TypeError(f"{found!r} is not a subclass of Method")
    config = getattr(found, "config_class", None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise TypeError(f"{found.__name__}.config_class must be a dataclass, not {config!r}")
    return MethodSpec(config, found)
