"""The command line: one file per group of verbs, no logic."""

from soundspot.cli.app import main

__all__ = ["main"]
