"""Frozen dataclasses from YAML, JSON and key=value overrides; what does not fit is refused."""

import dataclasses
import difflib
import functools
import json
import math
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml

from soundspot.common.errors import ConfigError, SoundspotError

T = TypeVar("T")


def nearest(name: str, choices: Sequence[str]) -> str:
    """A hint for a misspelled name: the nearest choice, if any is near, and a list of all."""
    close = difflib.get_close_matches(name, choices, n=1)
    hint = f"did you mean {close[0]!r}? The" if close else "the"
    return f"{hint} choices are {', '.join(choices)}"


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Look up a name in a table, or list the choices."""
    if name not in table:
        raise ConfigError(f"unknown {kind} {name!r}: {nearest(name, list(table))}")
    return table[name]


def read_yaml(path: Path, kind: str = "recipe") -> dict[str, Any]:
    """Read a YAML file that contains a mapping; `kind` says what it should be, for errors."""
    try:
        content = parse_yaml(read_bytes(path).decode())
    except FileNotFoundError as error:
        raise SoundspotError(f"no {kind} at {path}", "missing") from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"{path} is not a readable YAML file: {reason}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path} must contain a YAML mapping, not {type(content).__name__}")
    return content


def override(values: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Apply `a.b=value` assignments to nested mappings; values are read as YAML."""
    result = {k: dict(v) if isinstance(v, dict) else v for k, v in values.items()}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"an override must look like key=value, got {assignment!r}")
        *parents, leaf = key.split(".")
        node = result
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise ConfigError(f"{key}: {parent} is a value, not a section")
        try:
            node[leaf] = parse_yaml(text)
        except ValueError as error:
            raise ConfigError(f"the value in {assignment!r} is not valid YAML") from error
    return result


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a field accepts: `Annotated[int, Range(1, 9)]`, both ends included.

    Floats are finite, unless the range begins at minus infinity.
    """

    low: int | float
    high: int | float = math.inf


Seed = Annotated[int, Range(0, 2**63 - 1)]
Size = Annotated[int, Range(1, 2**31)]
Count = Annotated[int, Range(0, 10**12)]
Weight = Annotated[float, Range(0)]
Positive = Annotated[float, Range(1e-9)]
Share = Annotated[float, Range(0, 1)]
BelowOne = Annotated[float, Range(0, 1 - 1e-9)]
_RENAMED = {"map_centring": "map_centering", "centres": "centers"}  # keys of older checkpoints
_INT64 = Range(-(2**63), 2**63 - 1)  # PyTorch takes no larger ones


def from_dict(cls: type[T], values: Any, where: str = "") -> T:
    """Build a (nested) frozen dataclass from YAML or JSON values; `where` names their section."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where or cls.__name__} must be a section, not {_short(values)}")
    hints, fields = _fields_of(cls)  # type: ignore[arg-type]
    made: dict[str, Any] = {}
    for key, value in values.items():
        full = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise ConfigError(f"unknown key {full!r}: {nearest(str(key), list(fields))}")
        made[key] = _convert(value, hints[key], full)
    for name, field in fields.items():
        if name not in made and field.default is field.default_factory is dataclasses.MISSING:
            section = f" in section {where!r}" if where else ""
            raise ConfigError(f"missing key {name!r}{section}")
    try:
        return cls(**made)
    except ValueError as error:
        raise ConfigError(f"{where or cls.__name__}: {error}") from error


@functools.cache
def _fields_of(cls: type[Any]) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return hints, {field.name: field for field in dataclasses.fields(cls)}


def _convert(value: Any, hint: Any, where: str) -> Any:
    if hint is str and type(value) is str and "\0" not in value:  # most of what long files hold
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = (a for a in arguments if a is not type(None))
        return _convert(value, hint, where)
    if origin is Annotated:
        if arguments[1].low == -math.inf and isinstance(value, float):
            return value
        number = _convert_leaf(value, arguments[0], where)
        return _within(number, arguments[1], where)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, where)  # type: ignore[arg-type]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} must be a section of keys, not {_short(value)}")
        items = ((str(key), item) for key, item in value.items())
        return {key: _convert(item, arguments[1], f"{where}.{key}") for key, item in items}
    if origin is typing.Literal:
        # By type too: 1 == True to Python, but not to what reads the setting.
        if not any(type(value) is type(a) and value == a for a in arguments):
            choices = nearest(str(value), [str(a) for a in arguments])
            raise ConfigError(f"{where}={_short(value)}: {choices}")
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"{where} must be a list, not {_short(value)}")
        if arguments[-1] is not Ellipsis and len(value) != len(arguments):
            raise ConfigError(f"{where} must be {len(arguments)} values, not {_short(value)}")
        plain = arguments[0] is float and set(map(type, value)) == {float}
        if plain and all(map(math.isfinite, value)):  # most of what a file of scores holds
            return tuple(value)
        return tuple(_convert(v, arguments[0], f"{where}[{i}]") for i, v in enumerate(value))
    leaf = _convert_leaf(value, hint, where)
    return _within(leaf, _INT64, where) if hint is int else leaf


def _convert_leaf(value: Any, hint: Any, where: str) -> Any:
    if hint is Any or hint is object:
        return value
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{where} contains a NUL byte: {_short(value)}")
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)  # YAML 1.1 reads 5e-4 as a string
            if math.isfinite(number):
                return number
            raise ConfigError(f"{where} must be a finite number, not {_short(value)}")
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where} must be {hint.__name__}, not {_short(value)}")


def _within(number: Any, allowed: Range, where: str) -> Any:
    if allowed.low <= number <= allowed.high:
        return number
    upper = f"to {allowed.high}" if allowed.high < math.inf else "upwards"
    raise ConfigError(f"{where} must be from {allowed.low} {upper}, not {_short(number)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def read_typed(
    path: Path,
    cls: type[T],
    remedy: str,
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> T:
    """Read a JSON file of ours into a dataclass; whatever is wrong with it is one sentence.

    The sentence ends in `remedy`; `upgrade` turns the values of an older version into today's.
    """
    try:
        values = parse_json(read_bytes(path))
        if not isinstance(values, dict):
            raise ValueError(f"it holds a {type(values).__name__}, not keys and values")
        return from_dict(cls, upgrade(values))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SoundspotError) as error:
        raise SoundspotError(f"{path} is damaged ({error}); {remedy}", "damaged") from error


def to_dict(config: Any) -> dict[str, Any]:
    """A dataclass as plain values for JSON and YAML; `from_dict` reads them back."""
    return _plain(dataclasses.asdict(config))


def as_stored(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as an older version stored them, with what its newer keys meant at the time.

    A config whose newer key has a default of a new meaning says so in a class attribute `earlier`,
    and in `retired` the keys that are gone, with the only meaning that is left.
    """
    current = {_RENAMED.get(key, key): value for key, value in values.items()}
    retired = getattr(cls, "retired", {}).items()
    kept = {key: value for key, value in current.items() if (key, value) not in retired}
    return {**getattr(cls, "earlier", {}), **kept}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(values, default=os.fspath))
    return plain


def non_defaults(config: Any) -> dict[str, Any]:
    """The plain values of a (nested) dataclass that differ from its defaults.

    Names derived from a config should use these: a new field with a default then leaves old names
    unchanged. The default of a key in `earlier` is what it meant before there was one.
    """
    changed: dict[str, Any] = {}
    earlier = getattr(type(config), "earlier", {})
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            if inner := non_defaults(value):
                changed[field.name] = inner
        elif value != earlier.get(field.name, field.default):
            changed[field.name] = value
    return _plain(changed)


LARGEST = 2**28  # bytes of a file


def read_bytes(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a file that is not too large to be what it should be."""
    with path.open("rb") as file:
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"it is larger than {largest / 2**20:.0f} MB")
    return data


class _Loader(yaml.SafeLoader):
    """YAML without aliases, with which a small file can stand for a very large or endless one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it has an alias (*NAME): write the values out")
        return super().compose_node(parent, index)


def parse_yaml(text: str) -> Any:
    """The values of a YAML text."""
    return _parse(partial(yaml.load, text, _Loader))


def parse_json(data: str | bytes) -> Any:
    """The values of a JSON text."""
    return _parse(partial(json.loads, data))


def _parse(read: Callable[[], T]) -> T:
    try:
        return read()
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


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
