"""The command line: one verb a function, no logic.

A verb imports what it needs when it runs, so `--help` stays quick. Results go to standard output,
all else to standard error. Exit codes: 0 done, 2 bad input or damaged cache, 130 interrupted.
"""

import json as jsonlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from soundspot import __version__
from soundspot.cli.prepare import prepare_app
from soundspot.cli.weights import weights_app
from soundspot.common.errors import SoundspotError

app = App(
    name="soundspot",
    help="Find what is sounding in a picture.",
    version=f"soundspot {__version__}",
    help_format="plaintext",
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
app.command(weights_app)
app.command(prepare_app)
pairs_app = App(name="pairs", help="Look at a pair set.")
app.command(pairs_app)

Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
Flag = Annotated[bool, Parameter(negative="")]
EngineName = Literal["local", "ray"]
FileOrDash = Annotated[str | None, Parameter(allow_leading_hyphen=True)]


@app.command
def localize(
    file: Path,
    /,
    *,
    audio: Path | None = None,
    at: float | None = None,
    out: Out = None,
    model: str | None = None,
    json: FileOrDash = None,
    sources: int = 1,
    fps_map: float | None = None,
    overlays: Flag = False,
    engine: EngineName | None = None,
    jobs: int | None = None,
) -> None:
    """Show where the sound of a video comes from, or a sound file's in a photograph.

    The name of the output decides: a picture shows one moment, or with --sources one moment for
    each sound; a video shows the heat map move, with the sound, which ends with the pictures.
    Of a folder or a list of files each is localised, at its middle, to lines of JSON and maps.

    Args:
        file: A video with sound, or an image (then --audio is needed); or a folder, or a list of
            files, one path a line (.txt) or in the first column (.csv).
        audio: A sound file to locate, in place of the video's own sound.
        at: Seconds into the video; default: its middle.
        out: Picture (.png, .jpg, .webp) or video (.mp4, .mov, .mkv, .webm) to write; default:
            FILE-soundspot.png in this folder. For a folder or list, the folder to write.
        model: A model's name, a .safetensors checkpoint or a training run's folder.
        json: File for box, score, labels and map as JSON, for a video one line a map; - is
            standard output.
        sources: Tell up to so many sounds apart by time, and make a map of each.
        fps_map: How many maps to make a second of a video; default: 4.
        overlays: Draw the map of every file over its frame.
        engine: Who works on many files: processes of this machine (local) or of a cluster (ray).
        jobs: How many processes for many files; default: one a core.
    """
    from soundspot.inference.sources import is_folder_or_list

    if is_folder_or_list(file):
        from soundspot.inference.batch import BatchJob, run_batch
        from soundspot.parallel.engines import Engine

        one = {"--audio": audio, "--at": at, "--json": json, "--fps-map": fps_map}
        _refuse(one | {"--sources": sources != 1}, f"one file, but {file} stands for many")
        if out is None:
            raise SoundspotError(f"{file} stands for many files: name a folder for them with -o")
        chosen_engine = Engine(engine or "local", jobs)
        run_batch(BatchJob(file, out, model, overlays, chosen_engine), _say)
        return
    from soundspot.inference.file_job import FileJob, run_file_job

    many = {"--overlays": overlays, "--engine": engine, "--jobs": jobs}
    _refuse(many, f"a folder or list of many files, which {file} is not")
    place = out or Path(f"{file.stem}-soundspot.png")
    run_file_job(FileJob(file, audio, place, model, json, at, sources, fps_map), _say)


@app.command
def demo(*, out: Out = None) -> None:
    """Localise a dog's bark and a siren in a dog's photograph, and say what to look at.

    Args:
        out: Folder for the pictures; default: out.
    """
    from soundspot.inference.demo import run_demo

    run_demo(out or Path("out"), _say)


@app.command
def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    model: Annotated[list[str] | None, Parameter(negative="")] = None,
    max_seconds: float = 120.0,
    max_mb: int = 200,
) -> None:
    """Serve a web page: drop a video, see what sounds, compare two sounds or models.

    Args:
        host: Address to listen at; the default reaches this computer only.
        port: Port to listen at.
        model: A model's name, checkpoint or run folder; may be given several times. Default: the
            trained models that ship.
        max_seconds: Length of a video or sound that is taken.
        max_mb: Size of a file that is taken, in MB.
    """
    try:
        from soundspot.web.app import run
    except ImportError as error:
        raise SoundspotError(
            f"the web page needs gradio ({error}): pip install 'soundspot[demo]'"
        ) from error

    run(_say, host, port, model or (), {"seconds": max_seconds, "upload_mb": max_mb})


@pairs_app.command
def check(folder: Path, /) -> int:
    """List everything that is unreadable, missing, silent or in two splits; exit code 2 if any.

    Args:
        folder: The pair set.
    """
    from soundspot.data import pair_set as pairs

    found = pairs.PairSet.open(folder)
    problems = 0
    for problem in pairs.check(found):
        problems += 1
        _say(f"{problem.kind:<10} {problem.item} {problem.reason}")
    counts = ", ".join(f"{split} {len(found.select(split))}" for split in found.splits())
    _say(f"{found.name}: {counts}; {problems or 'no'} problem{'' if problems == 1 else 's'}")
    return 2 if problems else 0


@pairs_app.command(name="pack")
def pack_pairs(folder: Path, out: Path, /) -> None:
    """Copy a pair set into tar shards, as WebDataset reads them.

    Args:
        folder: The pair set.
        out: The new pair set.
    """
    from soundspot.data.corpora import pack
    from soundspot.data.pair_set import PairSet

    packed = pack(PairSet.open(folder), out)
    _say(f"{packed.root}: {len(packed.pairs)} pairs in {len(list(out.glob('*.tar')))} shards")


@app.command
def encode(
    folder: Path,
    /,
    *settings: str,
    recipe: Path | None = None,
    engine: EngineName = "local",
    jobs: int | None = None,
) -> None:
    """Compute the frozen features of a pair set once, so that training takes seconds.

    Kill it and start it again as you like; several processes share the work.

    Args:
        folder: The pair set.
        settings: Such as views=4 or audio=vggish.
        recipe: Take encoders and views from this recipe.
        engine: Who computes: this machine (local) or a cluster (ray).
        jobs: Processes; default: this one with all its threads, or all that the cluster has.
    """
    from soundspot.data.pair_set import PairSet
    from soundspot.features.encoding import encode_with_bar
    from soundspot.parallel.engines import Engine
    from soundspot.training.recipe import read_features

    chosen_engine = Engine(engine, 1 if engine == "local" and jobs is None else jobs)
    encode_with_bar(PairSet.open(folder), read_features(recipe, settings), _say, chosen_engine)


@app.command
def train(recipe: Path, /, *settings: str, out: Out = None) -> None:
    """Train a recipe; the same command goes on where a run was stopped.

    Args:
        recipe: A YAML file, such as those in recipes/.
        settings: Overrides such as train.epochs=3 or model.pcm=true.
        out: Folder of the run; default: runs/ and the recipe's name.
    """
    from soundspot.evaluation.validation import validate
    from soundspot.training.curves import training_curves
    from soundspot.training.loop import train as go
    from soundspot.training.recipe import read_recipe

    place = out or Path("runs") / recipe.stem
    go(read_recipe(recipe, settings), place, validate, training_curves)


@app.command
def evaluate(
    *models: str,
    benchmark: Annotated[list[str], Parameter(name=["--benchmark", "-b"], negative="")],
    data: Path | None = None,
    annotations: Path | None = None,
    maps: Annotated[list[Path] | None, Parameter(negative="")] = None,
    trivial: Flag = False,
    out: Out = None,
    cycles: int | None = None,
    guidance: float = 0.0,
) -> None:
    """Score models, or anyone's saved maps, on benchmarks, beside what needs no model at all.

    Args:
        models: Names of models, checkpoints or folders of training runs.
        benchmark: Such as escvoc, escvoc-duets, vggss, flickr; may be given several times.
        data: Pair set with the media; default for ESC-VOC: data/escvoc.
        annotations: Folder of the benchmark's annotation files.
        maps: Folder of saved maps, <pair id>.npy or maps.npz; may be given several times.
        trivial: Only the baselines; without models and maps this is so anyway.
        out: Folder for report.json, report.md and report.html.
        cycles: T of models with a PCM, if not the one they were trained with.
        guidance: Weight of object guidance: each model is also scored with its map blended with
            what stands out of the picture.
    """
    from soundspot.evaluation.report import write as report
    from soundspot.evaluation.runner import Job
    from soundspot.evaluation.runner import evaluate as run

    if trivial and (models or maps):
        raise SoundspotError("--trivial is for the baselines alone; they stand in every report")
    if out is not None:
        report.check_folder(out)
    job = Job(tuple(benchmark), models, data, annotations, tuple(maps or ()), cycles, guidance)
    done = run(job)
    report.show(done)
    if out is not None:
        report.write(done, out)
        _say(f"report: {out / 'report.html'}")


@app.command
def reproduce(
    table: str,
    /,
    *,
    data: Path = Path("data/escvoc"),
    seeds: int | None = None,
    quick: Flag = False,
    test: Path | None = None,
    benchmark: Annotated[
        list[str] | None, Parameter(name=["--benchmark", "-b"], negative="")
    ] = None,
    annotations: Path | None = None,
    runs: Path = Path("runs/reproduce"),
    out: Out = None,
) -> None:
    """Make a table or figure of the paper again: train what is missing, test, compare.

    Interrupt it as you like: the same command goes on, and tables share their runs.

    Args:
        table: main, reproductions, strategy, augmentations, scaling, fusion, cycles, or a figure:
            success, iterations, false-negatives.
        data: Pair set to train on.
        seeds: How many seeds; default: 3, or 1 with --quick.
        quick: Few epochs, to see the whole table soon.
        test: Pair set of the test media, where the training set brings no test split.
        benchmark: What to test on, then its duets, if any; default: the training set's own.
        annotations: Folder of the benchmark's annotation files.
        runs: Folder of all runs.
        out: Folder for the table as JSON and Markdown, and the figure; default: the folder of runs.
    """
    from soundspot.data.pair_set import PairSet
    from soundspot.reproduce import experiments, report
    from soundspot.reproduce.runs import set_exam
    from soundspot.reproduce.table import Plan

    experiments.find(table)
    pairs = PairSet.open(data)
    exam = set_exam(pairs, test, benchmark or (), annotations)
    count = seeds if seeds is not None else 1 if quick else 3
    report.run(Plan(table, pairs, exam, count, quick, runs), out or runs, _say)


@app.command
def audit(
    train_list: Path,
    /,
    *,
    benchmark: str,
    annotations: Path,
    out: Out = None,
    train_data: Path | None = None,
    data: Path | None = None,
    strict: Flag = False,
) -> int:
    """Find a benchmark's clips in a training list, by id and, given both pair sets, by look.

    Args:
        train_list: Ids, one a line (.txt) or in the first column (.csv); may be gzipped.
        benchmark: Such as vggss or flickr.
        annotations: Folder of the benchmark's annotation files.
        out: Where to write the training list without what leaks.
        train_data: Pair set of the training list.
        data: Pair set of the benchmark.
        strict: Exit code 2 if anything leaks.
    """
    from soundspot.evaluation.audit import write_ids
    from soundspot.evaluation.leaks import describe, find_leaks

    found = find_leaks(train_list, benchmark, annotations, train_data, data)
    _say(describe(found, train_list, benchmark))
    if out is not None:
        write_ids(out, found.clean_train)
        _say(f"clean list: {out}")
    return 2 if strict and (found.leaked or found.alike) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and turn every foreseen failure into one sentence.

    Args:
        arguments: Words of the command; default: those of the process.

    Returns:
        The exit code.
    """
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        error.verbose = False
        return _complain(f"{' '.join(str(error).split())} See `soundspot --help`.")
    except SoundspotError as error:
        return _complain(str(error))
    except BrokenPipeError:
        # The reader has gone, as in `soundspot weights list | head -1`. Python would complain once
        # more when it flushes standard output at the end: give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    return code if isinstance(code, int) else 0


def _refuse(options: Mapping[str, object], what: str) -> None:
    """Refuse options that were given and mean nothing here."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise SoundspotError(f"{name} is for {what}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


@app.command
def export(source: Path, target: Path, /, *, calibrate: Path | None = None) -> None:
    """Write a checkpoint for use alone: half precision, without what only training needs.

    Args:
        source: A training run's folder, or a checkpoint.
        target: The .safetensors file to write; its card goes beside it.
        calibrate: Pair set whose val split tells from which peak on a source is held to be visible.
    """
    from soundspot.model import checkpoint

    calibration = None
    if calibrate is not None:
        from soundspot.data.pair_set import PairSet
        from soundspot.evaluation import absence
        from soundspot.inference.localizer import load

        calibration = absence.calibrate(load(source), PairSet.open(calibrate))
    checkpoint.export(source, target, calibration)
    _say(f"{target}: {target.stat().st_size / 1e6:.1f} MB")


@app.command
def complexity(*words: str, json: Flag = False) -> None:
    """Count parameters and GFLOPs of a model, part by part.

    Args:
        words: A recipe (.yaml) or a model; then overrides such as model.cycles=3. Default: the
            paper's SSPL with PCM on VGG16 and VGGish.
        json: Print JSON in place of the table.
    """
    from soundspot.reproduce.complexity import measure, read_subject

    found = measure(read_subject(words))
    if json:
        _say(jsonlib.dumps(found.summary()))
    else:
        found.show()


def _complain(sentence: str) -> int:
    sys.stderr.write(f"soundspot: {sentence}\n")
    return 2
