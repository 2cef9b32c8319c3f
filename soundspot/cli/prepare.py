"""The verbs of `soundspot prepare`: one corpus a function, no logic."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from soundspot.data.corpora import Summary, Work
    from soundspot.data.finding import Selection

prepare_app = App(name="prepare", help="Turn a raw corpus into a pair set.")

Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True)
class Which:
    """Which clips, and how they are split.

    Attributes:
        ids: List of ids, one a line (.txt) or in the first column (.csv); may be gzipped.
        subset: So many clips only, drawn at random.
        seed: Of the draw.
    """

    ids: Path | None = None
    subset: int | None = None
    seed: int = 0

    def selection(self, val: float, test: float) -> "Selection":
        """Read the list."""
        from soundspot.common.id_lists import read_ids
        from soundspot.data.finding import Selection

        ids = None if self.ids is None else read_ids(self.ids)
        return Selection(ids, self.subset, self.seed, val, test)


@Parameter(name="*")
@dataclass(frozen=True)
class Split:
    """How clips are split.

    Attributes:
        val: Share of the validation split, by the ids' hash.
        test: Share of the test split.
    """

    val: float = 0.1
    test: float = 0.0


@Parameter(name="*")
@dataclass(frozen=True)
class How:
    """How to go about it.

    Attributes:
        engine: Processes of this machine (local) or of a cluster (ray).
        jobs: Processes; default: one a core.
        tar: Store the media in tar shards, as WebDataset reads them, not in one file each.
        strict: Exit code 2 if anything is lost.
    """

    engine: Literal["local", "ray"] = "local"
    jobs: int | None = None
    tar: Flag = False
    strict: Flag = False

    def work(self) -> "Work":
        """The same without what only the report needs."""
        from soundspot.data.corpora import Work

        return Work(self.jobs, self.tar, self.engine)


WHICH, SPLIT, HOW = Which(), Split(), How()


@prepare_app.command
def flickr(
    source: Path, out: Path, /, *, which: Which = WHICH, split: Split = SPLIT, how: How = HOW
) -> int:
    """Make a pair set of SoundNet-Flickr: the middle frame and the 3 s around it.

    Args:
        source: Folder of videos, or of frames and sounds, named by their ids.
        out: The pair set to make.
        which: Which clips.
        split: How they are split.
        how: How to go about it.
    """
    from soundspot.data.corpora import flickr

    selection = which.selection(split.val, split.test)
    return _report(flickr.prepare(source, out, selection, how.work()), how.strict)


@prepare_app.command
def vggsound(
    source: Path,
    out: Path,
    /,
    *,
    labels: Path | None = None,
    which: Which = WHICH,
    split: Split = SPLIT,
    how: How = HOW,
) -> int:
    """Make a pair set of VGG-Sound: the middle frame and the 3 s around it.

    Args:
        source: Folder of clips, or of frames and sounds, such as -_gaZzFfzDQ_000517.mp4.
        out: The pair set to make.
        labels: VGG-Sound's own vggsound.csv, for classes and its test split.
        which: Which clips.
        split: How they are split.
        how: How to go about it.
    """
    from soundspot.data.corpora import vggsound

    selection = which.selection(split.val, split.test)
    return _report(vggsound.prepare(source, out, selection, how.work(), labels), how.strict)


@prepare_app.command
def vggss(
    source: Path,
    out: Path,
    /,
    *,
    annotations: Path | None = None,
    which: Which = WHICH,
    how: How = HOW,
) -> int:
    """Make a pair set of VGG-SS: the frame its boxes were drawn on, and the 3 s around it.

    Args:
        source: Folder of clips, or of frames and sounds, such as -_gaZzFfzDQ_000517.mp4.
        out: The pair set to make.
        annotations: Folder of vggss.json, for ids, classes and boxes.
        which: Which clips.
        how: How to go about it.
    """
    from soundspot.data.corpora import vggss

    selection = which.selection(0.0, 1.0)
    return _report(vggss.prepare(source, out, selection, how.work(), annotations), how.strict)


@prepare_app.command
def music(
    source: Path,
    out: Path,
    /,
    *,
    lists: Annotated[list[Path] | None, Parameter(name="--list", negative="")] = None,
    which: Which = WHICH,
    split: Split = SPLIT,
    how: How = HOW,
) -> int:
    """Make a pair set of MUSIC: the middle frame of a solo or duet and the 3 s around it.

    Args:
        source: Folder of videos, named by their YouTube ids.
        out: The pair set to make.
        lists: MUSIC's JSON of classes and ids; may be given several times; default: MUSIC*.json
            in the folder.
        which: Which clips.
        split: How they are split.
        how: How to go about it.
    """
    from soundspot.data.corpora import music

    selection = which.selection(split.val, split.test)
    return _report(music.prepare(source, out, selection, how.work(), lists or ()), how.strict)


@prepare_app.command
def folder(
    source: Path,
    out: Path,
    /,
    *,
    classes: Flag = False,
    which: Which = WHICH,
    split: Split = SPLIT,
    how: How = HOW,
) -> int:
    """Make a pair set of a folder of videos: the middle frame and the 3 s around it.

    Args:
        source: The folder; its sub-folders are read too.
        out: The pair set to make.
        classes: Take the names of the sub-folders as classes.
        which: Which clips.
        split: How they are split.
        how: How to go about it.
    """
    from soundspot.data.corpora import folder

    selection = which.selection(split.val, split.test)
    return _report(folder.prepare(source, out, selection, how.work(), classes), how.strict)


@prepare_app.command
def escvoc(
    source: Path,
    out: Path,
    /,
    *,
    voc: Path | None = None,
    esc50: Path | None = None,
    strict: Flag = False,
) -> int:
    """Make the ESC-VOC pair set.

    Args:
        source: The benchmark's folder, with its lists and media.
        out: The pair set to make.
        voc: Your own copy of VOC2007, in place of the benchmark's photographs from it.
        esc50: Your own copy of ESC-50, in place of the benchmark's sounds.
        strict: Exit code 2 if anything is lost.
    """
    from soundspot.data.corpora import escvoc

    return _report(escvoc.prepare(source, out, voc=voc, esc50=esc50), strict)


def _report(summary: "Summary", strict: bool) -> int:
    from soundspot.data.summary import describe, show

    show(summary)
    sys.stdout.write(describe(summary))
    return 2 if strict and summary.losses else 0
