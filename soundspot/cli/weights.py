"""The verbs of `soundspot weights`, no logic."""

from pathlib import Path

from cyclopts import App

from soundspot.cli.options import Flag, say

weights_app = App(name="weights", help="List, fetch, add and verify the pretrained encoders.")


@weights_app.command(name="list")
def list_weights() -> None:
    """Show every name, its licence, its sources and whether it is in the cache."""
    from soundspot.encoders import weights

    for entry in weights.list_entries():
        state = f"cached, {entry.size / 1e6:.1f} MB" if entry.cached else "not cached"
        say(f"{entry.name:<16} {state:<18} {entry.description}")
        for line in (f"licence: {entry.licence}", *entry.sources):
            say(f"    {line}")


@weights_app.command
def fetch(name: str, /, *, force: Flag = False, url: str | None = None) -> None:
    """Bring weights into the cache and convert them.

    Args:
        name: As `soundspot weights list` shows it.
        force: Mend what is damaged.
        url: Another address of the same public file.
    """
    from soundspot.encoders import weights

    say(str(weights.fetch(name, url=url, force=force)))


@weights_app.command
def add(name: str, file: Path, /) -> None:
    """Put a file of yours into the cache, if it is the public one.

    Args:
        name: As `soundspot weights list` shows it.
        file: The weights as published, or the archive that holds them.
    """
    from soundspot.encoders import weights

    say(str(weights.add(name, file)))


@weights_app.command
def path(name: str, /) -> None:
    """Say where the cache holds weights.

    Args:
        name: As `soundspot weights list` shows it.
    """
    from soundspot.encoders import weights

    say(str(weights.path(name)))


@weights_app.command
def verify() -> int:
    """Check every byte in the cache; exit code 2 if something is damaged."""
    from soundspot.encoders import weights

    statuses = weights.verify()
    for status in statuses:
        say(f"{status.name:<16} {status.problem or ('ok' if status.cached else 'not cached')}")
    return 2 if any(status.problem for status in statuses) else 0
