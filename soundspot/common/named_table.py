"""Things looked up by name: from a table in the code, or added by installed packages."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from soundspot.common.errors import SoundspotError

T = TypeVar("T")


class NamedTable(Mapping[str, T]):
    """Names, and where the things they stand for are, as "module:thing".

    A name that the lines do not have is looked for among the entry points that installed packages
    have in the group "soundspot.KINDs". Either is imported when it is asked for.
    """

    def __init__(self, kind: str, lines: dict[str, str], read: Callable[[str, object], T]) -> None:
        """Of one kind of things; `read` checks a name and what was found there."""
        self.kind, self.lines, self.read = kind, lines, read
        self.group = f"soundspot.{kind}s"

    def __getitem__(self, name: str) -> T:
        """Import a thing; a package's that cannot be used is refused in one sentence."""
        if name in self.lines:
            return self.read(name, EntryPoint(name, self.lines[name], self.group).load())
        (entry, *_) = entry_points(group=self.group, name=name) or (None,)
        if entry is None:
            raise KeyError(name)
        try:
            return self.read(name, entry.load())
        except Exception as error:  # importing a package runs its code, which may do anything
            package = f"of the package {entry.dist.name} " if entry.dist else ""
            raise SoundspotError(
                f"the {self.kind} {name!r} {package}cannot be loaded from {entry.value}: {error}"
            ) from error

    def __iter__(self) -> Iterator[str]:
        """All names, without importing anything."""
        installed = (entry.name for entry in entry_points(group=self.group))
        return iter(dict.fromkeys([*self.lines, *installed]))

    def __len__(self) -> int:
        """How many names there are."""
        return sum(1 for _ in self)

    def usable(self) -> dict[str, T]:
        """All things, imported; without those of packages that are broken."""
        found = {}
        for name in self:
            with suppress(SoundspotError):
                found[name] = self[name]
        return found
