"""Raw corpora to pair sets, one file per corpus.

A new corpus is one new file with a `prepare(source, out, ...) -> Summary` and one line here.
"""

from collections.abc import Callable

from soundspot.prepare import escvoc, folder
from soundspot.prepare.writer import Entry, PairWriter, Summary, pack

__all__ = ["CORPORA", "Entry", "PairWriter", "Summary", "pack"]

CORPORA: dict[str, Callable[..., Summary]] = {
    "escvoc": escvoc.prepare,
    "folder": folder.prepare,
}
