"""Is there one file to localise, or many? The answer needs no model and no decoder."""

from pathlib import Path

LIST_SUFFIXES = (".txt", ".csv", ".txt.gz", ".csv.gz")


def is_folder_or_list(source: Path) -> bool:
    """Whether a path names many files: a folder, or a list of files."""
    return source.is_dir() or source.name.lower().endswith(LIST_SUFFIXES)
