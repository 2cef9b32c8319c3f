"""What the verbs share: types of options, and where results are printed."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, Token

from soundspot.common.errors import SoundspotError

REPEATABLE = Parameter(negative="")

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
FileOrDash = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Benchmarks = Annotated[list[str], Parameter(name=["--benchmark", "-b"], negative="")]
Device = Annotated[
    str, Parameter(help="Where to compute: auto (a CUDA GPU if there is one), cpu, cuda or mps.")
]


def read_moment(kind: object, tokens: Sequence[Token]) -> float | str:
    """A time as people write it: 12.5, 0:12, 1:02:03.5, best or middle; for `Moment`."""
    text = tokens[0].value
    if text in ("best", "middle"):
        return text
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or any(not 0 <= part < 60 for part in parts[1:]):
        raise ValueError(f'"{text}" is not a time: write 12.5, 0:12, best or middle')
    seconds = 0.0
    for part in parts:
        seconds = 60 * seconds + part
    return seconds


Moment = Annotated[float | Literal["best", "middle"], Parameter(converter=read_moment)]


def own_command() -> str:
    """The command line that is running, for reports that say how they were made."""
    return shlex.join(["soundspot", *sys.argv[1:]])


def say(line: str) -> None:
    """Print one line of the result."""
    sys.stdout.write(f"{line}\n")


def complain(sentence: str) -> None:
    """Print why something failed."""
    sys.stderr.write(f"soundspot: {sentence}\n")


def refuse(options: Mapping[str, object], reason: str) -> None:
    """Refuse options that were given but do not apply."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise SoundspotError(f"{name} {reason}")
