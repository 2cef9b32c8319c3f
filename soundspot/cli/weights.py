"""The verbs of `soundspot weights`, no logic."""

from pathlib import Path

from cyclopts import App

from soundspot.cli.options import Flag, say
from soundspot.encoders import weights

weights_app = App(name="weights", help="List, fetch, add and verify the pretrained encoders.")


@weights_app.command(name="list")
def list_weights() -> None:
    """List all names with their licenses and sources, and whether they are in the cache."""
    for status in weights.list_entries():
        entry = status.entry
        state = f"cached, {status.size / 1e6:.1f} MB" if status.cached else "not cached"
        say(f"{entry.name:<20} {state:<18} {entry.description}")
        for line in (f"license: {entry.license}", *entry.sources):
            say(f"    {line}")


@weights_app.command
def fetch(name: str, /, *, force: Flag = False, url: str | None = None) -> None:
    """Download weights into the cache and convert them.

    Args:
        name: A name from `soundspot weights list`.
        force: Repair a damaged cache.
        url: Another URL of the same public file.
    """
    say(str(weights.fetch(name, url=url, force=force)))


@weights_app.command
def add(name: str, file: Path, /) -> None:
    """Add a file that you downloaded to the cache, if it is the published one.

    Args:
        name: A name from `soundspot weights list`.
        file: The weights as published, or the archive that contains them.
    """
    say(str(weights.add(name, file)))


@weights_app.command
def path(name: str, /) -> None:
    """Print the path of weights in the cache.

    Args:
        name: A name from `soundspot weights list`.
    """
    say(str(weights.path(name)))


@weights_app.command
def verify() -> int:
    """Check every file in the cache; exit with code 2 if one is damaged."""
    statuses = weights.verify()
    for status in statuses:
        say(
            f"{status.entry.name:<20} {status.problem or ('ok' if status.cached else 'not cached')}"
        )
    return 2 if any(status.problem for status in statuses) else 0
