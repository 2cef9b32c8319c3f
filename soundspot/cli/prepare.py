"""The verbs of `soundspot prepare`: one function per corpus, no logic."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from soundspot.cli.options import Flag
from soundspot.data.options import Options, SplitOptions

if TYPE_CHECKING:
    from soundspot.data.writer import Summary

prepare_app = App(
    name="prepare",
    help="Turn a raw corpus into a pair set.",
    default_parameter=Parameter(negative=""),
)


Out = Annotated[Path, Parameter(help="The pair set to make.")]
Strict = Annotated[bool, Parameter(show_default=False, help="Exit with code 2 on any loss.")]
Shared = Annotated[Options, Parameter(name="*")]
Splits = Annotated[SplitOptions, Parameter(name="*")]
SHARED, SPLITS = Options(), SplitOptions()
Lists = Annotated[list[Path] | None, Parameter(name="--list", negative="")]


@prepare_app.command
def flickr(source: Path, out: Out, /, *, options: Splits = SPLITS) -> int:
    """Make a pair set of SoundNet-Flickr: the middle frame and the 3 s around it.

    Args:
        source: Folder of videos, or of frames and sounds, named by their ids.
    """
    from soundspot.data.corpora.flickr import prepare

    return _report(prepare(source, out, options), options.strict)


@prepare_app.command
def vggsound(
    source: Path, out: Out, /, *, labels: Path | None = None, options: Splits = SPLITS
) -> int:
    """Make a pair set of VGG-Sound: the middle frame and the 3 s around it.

    Args:
        source: Folder of clips, or of frames and sounds, such as -_gaZzFfzDQ_000517.mp4.
        labels: VGG-Sound's own vggsound.csv, for classes and its test split.
    """
    from soundspot.data.corpora.vggsound import prepare

    return _report(prepare(source, out, options, labels), options.strict)


@prepare_app.command
def vggss(
    source: Path, out: Out, /, *, annotations: Path | None = None, options: Shared = SHARED
) -> int:
    """Make a pair set of VGG-SS: the frame its boxes were drawn on, and the 3 s around it.

    Args:
        source: Folder of clips, or of frames and sounds, such as -_gaZzFfzDQ_000517.mp4.
        annotations: Folder of vggss.json, for ids, classes and boxes.
    """
    from soundspot.data.corpora.vggss import prepare

    return _report(prepare(source, out, options, annotations), options.strict)


@prepare_app.command
def music(source: Path, out: Out, /, *, lists: Lists = None, options: Splits = SPLITS) -> int:
    """Make a pair set of MUSIC: the middle frame of a solo or duet and the 3 s around it.

    Args:
        source: Folder of videos, named by their YouTube ids.
        lists: MUSIC's JSON list of classes and ids; repeat for several. Default: MUSIC*.json in
            the folder.
    """
    from soundspot.data.corpora.music import prepare

    return _report(prepare(source, out, options, lists or ()), options.strict)


@prepare_app.command
def folder(source: Path, out: Out, /, *, classes: Flag = False, options: Splits = SPLITS) -> int:
    """Make a pair set of a folder of videos: the middle frame and the 3 s around it.

    Args:
        source: The folder; its sub-folders are read too.
        classes: Use the names of the sub-folders as classes.
    """
    from soundspot.data.corpora.folder import prepare

    return _report(prepare(source, out, options, classes), options.strict)


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
    strict: Strict = False,
) -> int:
    """Make the ESC-VOC pair set from public downloads: `prepare escvoc OUT --voc ... --esc50 ...`.

    Args:
        folder: The pair set to make or, before a second folder, the benchmark with its media.
        out: The pair set to make, if the first folder is the benchmark.
        voc: VOCdevkit, as VOC2007's archives unpack: 75 % of the photographs.
        esc50: ESC-50-master: the sounds.
        rf100: The dataset "animals" of Roboflow 100: 14 % of the photographs.
        caltech: Caltech-101: 11 % of the photographs.
    """
    from soundspot.data.corpora.escvoc import Originals, prepare

    source, target = (None, folder) if out is None else (folder, out)
    return _report(prepare(source, target, Originals(voc, esc50, rf100, caltech)), strict)


@prepare_app.command
def anysound(source: Path, out: Out, /, *, strict: Strict = False) -> int:
    """Make the anysound pair set, for evaluation only: things that ESC-VOC does not have.

    Args:
        source: The benchmark's folder, with its lists and media.
    """
    from soundspot.data.corpora.anysound import prepare

    return _report(prepare(source, out), strict)


@prepare_app.command
def boxed(
    source: Path,
    out: Out,
    /,
    *,
    sounds: Path | None = None,
    split: Literal["val", "test"] = "val",
    strict: Strict = False,
) -> int:
    """Make a pair set of your own clips with boxes, for evaluation.

    Args:
        source: Folder with media and one JSON list of {file, at, boxes, visible, kind}.
        sounds: Pair set whose sounds are played to pictures with boxes by class.
        split: val if you choose anything by these clips, otherwise test; sounds are of it too.
    """
    from soundspot.data.corpora.boxed import Sounds, prepare
    from soundspot.data.pair_set import PairSet

    played = None if sounds is None else Sounds(PairSet.open(sounds), split)
    return _report(prepare(source, out, played, split), strict)


@prepare_app.command
def escvoc_hard(source: Path, out: Out, /, *, strict: Strict = False) -> int:
    """Make the escvoc-hard pair set: pairs of ESC-VOC small, blurred, rotated, in noise.

    Args:
        source: The prepared pair set of ESC-VOC.
    """
    from soundspot.data.corpora.escvoc_hard import prepare
    from soundspot.encoders import weights
    from soundspot.media.clips import read_waveform

    return _report(prepare(source, out, read_waveform(weights.media("speech"))), strict)


@prepare_app.command
def escvoc_mix(source: Path, out: Out, /, *, strict: Strict = False) -> int:
    """Make the escvoc-mix pair set: duets of ESC-VOC with both sounds at once.

    Args:
        source: The prepared pair set of ESC-VOC.
    """
    from soundspot.data.corpora.escvoc_mix import prepare

    return _report(prepare(source, out), strict)


def _report(summary: "Summary", strict: bool) -> int:
    from soundspot.data.writer import show_summary

    show_summary(summary)
    return 2 if strict and summary.losses else 0
