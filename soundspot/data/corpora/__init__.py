"""Raw corpora to pair sets, one file per corpus.

A new corpus is one new file with a `prepare(source, out, ...) -> Summary` and one line here.
"""

from collections.abc import Callable

from soundspot.data.corpora import escvoc, flickr, folder, music, vggsound, vggss
from soundspot.data.preparation import Work
from soundspot.data.shards import pack
from soundspot.data.writer import Entry, PairWriter, Summary

__all__ = ["CORPORA", "Entry", "PairWriter", "Summary", "Work", "pack"]

CORPORA: dict[str, Callable[..., Summary]] = {
    "escvoc": escvoc.prepare,
    "flickr": flickr.prepare,
    "folder": folder.prepare,
    "music": music.prepare,
    "vggsound": vggsound.prepare,
    "vggss": vggss.prepare,
}
