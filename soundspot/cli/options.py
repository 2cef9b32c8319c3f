"""What the verbs share: types of options, and where results are printed."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from soundspot.common.errors import SoundspotError

REPEATABLE = Parameter(negative="")

Flag = Annotated[bool, Parameter(negative="", show_default=False)]
Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
FileOrDash = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
Benchmarks = Annotated[list[str], Parameter(name=["--benchmark", "-b"], negative="")]
EngineName = Literal["local", "ray"]


def say(line: str) -> None:
    """Print one line of the result."""
    sys.stdout.write(f"{line}\n")


def refuse(options: Mapping[str, object], reason: str) -> None:
    """Refuse options that were given but do not apply."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise SoundspotError(f"{name} {reason}")
