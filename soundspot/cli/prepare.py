"""The verbs of `soundspot prepare`: one function per corpus, no logic."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from soundspot.cli.options import EngineName, Flag
from soundspot.common.id_lists import read_ids

if TYPE_CHECKING:
    from soundspot.data.writer import Summary

prepare_app = App(name="prepare", help="Turn a raw corpus into a pair set.")


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """Which clips, and how they are prepared.

    Attributes:
        ids: List of ids, one per line (.txt) or in the first column (.csv); may be gzipped.
        subset: Only this many clips, drawn at random.
        seed: Seed of the draw.
        engine: Run on this machine (local) or on a Ray cluster (ray).
        jobs: Number of processes; default: one per core.
        tar: Store the media in tar shards that WebDataset can read, not in separate files.
        strict: Exit with code 2 if anything is lost.
    """

    ids: Path | None = None
    subset: int | None = None
    seed: int = 0
    engine: EngineName = "local"
    jobs: int | None = None
    tar: Flag = False
    strict: Flag = False


@Parameter(name="*")
@dataclass(frozen=True)
class SplitOptions(Options):
    """The same, and how the clips are split.

    Attributes:
        val: Fraction of the clips in the validation split, chosen by the hash of their ids.
        test: Fraction of the clips in the test split.
    """

    val: float = 0.1
    test: float = 0.0


OPTIONS, SPLIT_OPTIONS = Options(), SplitOptions()
Lists = Annotated[list[Path] | None, Parameter(name="--list", negative="")]


@prepare_app.command
def flickr(source: Path, out: Path, /, *, options: SplitOptions = SPLIT_OPTIONS) -> int:
    """Make a pair set of SoundNet-Flickr: the middle frame and the 3 s around it.

    Args:
        source: Folder of videos, or of frames and sounds, named by their ids.
        out: The pair set to make.
        options: Which clips, and how they are prepared.
    """
    from soundspot.data.corpora.flickr import prepare

    return _prepare(prepare, source, out, options)


@prepare_app.command
def vggsound(
    source: Path, out: Path, /, *, labels: Path | None = None, options: SplitOptions = SPLIT_OPTIONS
) -> int:
    """Make a pair set of VGG-Sound: the middle frame and the 3 s around it.

    Args:
        source: Folder of clips, or of frames and sounds, such as -_gaZzFfzDQ_000517.mp4.
        out: The pair set to make.
        labels: VGG-Sound's own vggsound.csv, for classes and its test split.
        options: Which clips, and how they are prepared.
    """
    from soundspot.data.corpora.vggsound import prepare

    return _prepare(prepare, source, out, options, labels)


@prepare_app.command
def vggss(
    source: Path, out: Path, /, *, annotations: Path | None = None, options: Options = OPTIONS
) -> int:
    """Make a pair set of VGG-SS: the frame its boxes were drawn on, and the 3 s around it.

    Args:
        source: Folder of clips, or of frames and sounds, such as -_gaZzFfzDQ_000517.mp4.
        out: The pair set to make.
        annotations: Folder of vggss.json, for ids, classes and boxes.
        options: Which clips, and how they are prepared.
    """
    from soundspot.data.corpora.vggss import prepare

    return _prepare(prepare, source, out, options, annotations)


@prepare_app.command
def music(
    source: Path, out: Path, /, *, lists: Lists = None, options: SplitOptions = SPLIT_OPTIONS
) -> int:
    """Make a pair set of MUSIC: the middle frame of a solo or duet and the 3 s around it.

    Args:
        source: Folder of videos, named by their YouTube ids.
        out: The pair set to make.
        lists: MUSIC's JSON list of classes and ids; repeat for several. Default: MUSIC*.json in
            the folder.
        options: Which clips, and how they are prepared.
    """
    from soundspot.data.corpora.music import prepare

    return _prepare(prepare, source, out, options, lists or ())


@prepare_app.command
def folder(
    source: Path, out: Path, /, *, classes: Flag = False, options: SplitOptions = SPLIT_OPTIONS
) -> int:
    """Make a pair set of a folder of videos: the middle frame and the 3 s around it.

    Args:
        source: The folder; its sub-folders are read too.
        out: The pair set to make.
        classes: Use the names of the sub-folders as classes.
        options: Which clips, and how they are prepared.
    """
    from soundspot.data.corpora.folder import prepare

    return _prepare(prepare, source, out, options, classes)


@prepare_app.command
def escvoc(
    folder: Path,
    out: Path | None = None,
    /,
    *,
    voc: Path | None = None,
    esc50: Path | None = None,
    rf100: Path | None = None,
    caltech: Path | None = None,
    strict: Flag = False,
) -> int:
    """Make the ESC-VOC pair set from public downloads: `prepare escvoc OUT --voc ... --esc50 ...`.

    Args:
        folder: The pair set to make or, before a second folder, the benchmark with its media.
        out: The pair set to make, if the first folder is the benchmark.
        voc: VOCdevkit, as VOC2007's archives unpack: 75 % of the photographs.
        esc50: ESC-50-master: the sounds.
        rf100: The dataset "animals" of Roboflow 100: 14 % of the photographs.
        caltech: Caltech-101: 11 % of the photographs.
        strict: Exit with code 2 if anything is lost.
    """
    from soundspot.data.corpora.escvoc import Originals, prepare

    source, target = (None, folder) if out is None else (folder, out)
    return _report(prepare(source, target, Originals(voc, esc50, rf100, caltech)), strict)


@prepare_app.command
def anysound(source: Path, out: Path, /, *, strict: Flag = False) -> int:
    """Make the anysound pair set, for evaluation only: things that ESC-VOC does not have.

    Args:
        source: The benchmark's folder, with its lists and media.
        out: The pair set to make.
        strict: Exit with code 2 if anything is lost.
    """
    from soundspot.data.corpora.anysound import prepare

    return _report(prepare(source, out), strict)


@prepare_app.command
def boxed(
    source: Path,
    out: Path,
    /,
    *,
    sounds: Path | None = None,
    split: Literal["val", "test"] = "val",
    strict: Flag = False,
) -> int:
    """Make a pair set of your own clips with boxes, for evaluation.

    Args:
        source: Folder with media and one JSON list of {file, at, boxes, visible, kind}.
        out: The pair set to make.
        sounds: Pair set whose sounds are played to pictures with boxes by class.
        split: val if you choose anything by these clips, otherwise test; sounds are of it too.
        strict: Exit with code 2 if anything is lost.
    """
    from soundspot.data.corpora.boxed import Sounds, prepare
    from soundspot.data.pair_set import PairSet

    played = None if sounds is None else Sounds(PairSet.open(sounds), split)
    return _report(prepare(source, out, played, split), strict)


@prepare_app.command
def escvoc_hard(source: Path, out: Path, /, *, strict: Flag = False) -> int:
    """Make the escvoc-hard pair set: pairs of ESC-VOC at half size, blurred, rotated, in noise.

    Args:
        source: The prepared pair set of ESC-VOC.
        out: The pair set to make.
        strict: Exit with code 2 if anything is lost.
    """
    from soundspot.data.corpora.escvoc_hard import prepare
    from soundspot.encoders import weights
    from soundspot.media.clips import read_waveform

    return _report(prepare(source, out, read_waveform(weights.media("speech"))), strict)


def _prepare(
    prepare: Callable[..., "Summary"], source: Path, out: Path, options: Options, *extra: object
) -> int:
    from soundspot.data.corpus_files import Selection
    from soundspot.data.preparation import PrepareOptions
    from soundspot.parallel.engines import Engine

    ids = None if options.ids is None else read_ids(options.ids)
    split = (options.val, options.test) if isinstance(options, SplitOptions) else ()
    selection = Selection(ids, options.subset, options.seed, *split)
    how = PrepareOptions(Engine(options.engine, options.jobs), options.tar)
    return _report(prepare(source, out, selection, how, *extra), options.strict)


def _report(summary: "Summary", strict: bool) -> int:
    from soundspot.data.writer import describe_summary, show_summary

    show_summary(summary)
    sys.stdout.write(describe_summary(summary))
    return 2 if strict and summary.losses else 0
