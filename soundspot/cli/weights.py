"""The verbs of `soundspot weights`, no logic."""

from pathlib import Path

from cyclopts import App

from soundspot.cli.options import complain, say
from soundspot.encoders import weights

weights_app = App(name="weights", help="List, fetch, add and verify the pretrained encoders.")


@weights_app.command(name="list")
def list_weights() -> None:
    """List all names with their licenses and sources, and whether they are in the cache."""
    for entry, state, size in weights.list_entries():
        say(f"{entry.name:<20} {state}, {size / 1e6:.1f} MB: {entry.description}")
        for line in (f"license: {entry.license}", *entry.sources):
            say(f"    {line}")


@weights_app.command
def fetch(name: str, /) -> None:
    """Download weights into the cache and convert them, if it does not hold them undamaged.

    Args:
        name: A name from `soundspot weights list`.
    """
    say(str(weights.fetch(name)))


@weights_app.command
def add(name: str, file: Path, /) -> None:
    """Add a file that you downloaded to the cache, if it is the published one.

    Args:
        name: A name from `soundspot weights list`.
        file: The weights as published, or the archive that contains them.
    """
    say(str(weights.add(name, file)))


@weights_app.command
def verify() -> int:
    """Check every file in the cache; exit with code 2 if one is damaged."""
    exit_code = 0
    for entry, state, _ in weights.list_entries(verify=True):
        say(f"{entry.name:<20} {state}")
        if state == "damaged":
            exit_code = 2
            complain(f"repair it with `soundspot weights fetch {entry.name}`")
    return exit_code
