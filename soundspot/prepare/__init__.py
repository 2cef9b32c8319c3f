"""Raw corpora to pair sets, one file per corpus.

A new corpus is one new file with a `prepare(source, out, ...) -> Summary` and one line here.
"""

from collections.abc import Callable

from soundspot.prepare import escvoc, flickr, folder, music, vggsound, vggss
from soundspot.prepare.corpus import Work
from soundspot.prepare.shards import pack
from soundspot.prepare.writer import Entry, PairWriter, Summary

__all__ = ["CORPORA", "Entry", "PairWriter", "Summary", "Work", "pack"]

CORPORA: dict[str, Callable[..., Summary]] = {
    "escvoc": escvoc.prepare,
    "flickr": flickr.prepare,
    "folder": folder.prepare,
    "music": music.prepare,
    "vggsound": vggsound.prepare,
    "vggss": vggss.prepare,
}
