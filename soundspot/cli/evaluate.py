"""The verbs that measure: evaluate, audit, reproduce, complexity."""

import json as jsonlib
from pathlib import Path
from typing import Annotated

import soundspot
from soundspot.cli.options import REPEATABLE, Benchmarks, Device, Flag, Out, own_command, say
from soundspot.common.errors import SoundspotError
from soundspot.common.id_lists import read_ids, write_ids
from soundspot.common.progress import result_console


def evaluate(
    *models: str,
    benchmark: Benchmarks,
    data: Path | None = None,
    annotations: Path | None = None,
    maps: Annotated[list[Path] | None, REPEATABLE] = None,
    trivial: Flag = False,
    out: Out = None,
    cycles: int | None = None,
    guidance: float = 0.0,
    outline: Flag = False,
    unseen: Flag = False,
    device: Device = "auto",
) -> None:
    """Score models, or maps saved by any program, on benchmarks, alongside trivial baselines.

    Args:
        models: Names of models, checkpoints or folders of training runs.
        benchmark: escvoc, escvoc-duets, vggss, flickr, ...; repeat for several.
        data: Pair set with the media. Default for ESC-VOC: data/escvoc.
        annotations: Folder of the benchmark's annotation files.
        maps: Folder of saved maps, one .npy per pair id or a maps.npz; repeat for several.
        trivial: Score only the baselines, which is the default if no model or maps are given.
        out: Folder for report.json and report.html.
        cycles: T of models with a PCM. Default: the T they were trained with.
        guidance: Weight of object guidance: also score each model with its map blended with what
            stands out in the picture.
        outline: Also score each model with the boxes around the outlines of its maps: benchmarks
            annotate boxes. Where no mask agrees with a map, the map is scored.
        unseen: Also score each model under sounds that nothing in the picture makes, at one
            threshold chosen on val, and in retrieval by class; ESC-VOC only.
    """
    from soundspot.evaluation import report

    if trivial and (models or maps):
        raise SoundspotError("--trivial scores the baselines alone; they are in every report")
    done = soundspot.evaluate(
        models,
        benchmark,
        data=data,
        annotations=annotations,
        maps=maps or (),
        cycles=cycles,
        guidance=guidance,
        outline=outline,
        unseen=unseen,
        out=out,
        device=device,
        command=own_command(),
    )
    report.show(done)
    if out is not None:
        say(f"report: {out / 'report.html'}")


def audit(
    train_list: Path | None = None,
    /,
    *,
    benchmark: str = "vggss",
    annotations: Path,
    sounder: Path | None = None,
    out: Out = None,
    strict: Flag = False,
) -> int:
    """Find clips of a benchmark in a training list.

    With --sounder instead of a list: say which sources of VGG-SS are heard and seen.

    Args:
        train_list: Ids, one per line (.txt) or in the first column (.csv); may be gzipped.
        benchmark: vggss, flickr, ...
        annotations: Folder of the benchmark's annotation files.
        sounder: VGGSounder's CSV file: its package has vggsounder+background-music.csv.
        out: Write the training list without the leaked clips to this file; with --sounder, the
            lists of vggss-verified, vggss-offscreen and vggss-single to this folder.
        strict: Exit with code 2 if anything leaks.
    """
    from soundspot.evaluation.audit import audit_vggss, compare_ids
    from soundspot.evaluation.benchmarks import load_benchmark

    if (train_list is None) == (sounder is None):
        raise SoundspotError("audit takes either a training list or --sounder FILE")
    if sounder is not None:
        found = audit_vggss(sounder, annotations)
        say(found.describe())
        if out is not None:
            found.write(out)
        return 0
    assert train_list is not None
    items = load_benchmark(benchmark, annotations)
    leaks = compare_ids(read_ids(train_list), items)
    say(leaks.describe(train_list, benchmark))
    if out is not None:
        write_ids(out, leaks.clean_train)
        say(f"clean list: {out}")
    return 2 if strict and leaks.leaked else 0


def reproduce(
    table: str,
    /,
    *,
    data: Path = Path("data/escvoc"),
    seeds: int | None = None,
    quick: Flag = False,
    test: Path | None = None,
    benchmark: Benchmarks | None = None,
    annotations: Path | None = None,
    runs: Path = Path("runs/reproduce"),
    records: Path | None = None,
    no_training: Flag = False,
    line: Annotated[list[str] | None, REPEATABLE] = None,
    out: Out = None,
    device: Device = "auto",
) -> None:
    """Reproduce a table or figure of the paper: train what is missing, then test and compare.

    It can be interrupted at any time: the same command resumes. Tables share their runs.

    Args:
        table: Table (main, reproductions, strategy, augmentations, scaling, fusion, cycles),
            figure (success, iterations, examples, false-negatives), or one that is not in the
            paper (steps, ingredients).
        data: Pair set to train on. With --no-training only its name counts, escvoc by default.
        seeds: Number of seeds. Default: 3, or 1 with --quick.
        quick: Train for only a few steps, to see the whole table quickly.
        test: Pair set to test on, if the training set has no test split.
        benchmark: Benchmark to test on, then its duets if it has any. Default: the training set's.
        annotations: Folder of the benchmark's annotation files.
        runs: Folder of all runs.
        records: File of the records of runs: a run that has one is neither trained nor tested
            again, and every other gets one. Default: records.jsonl.gz in the folder of the runs.
        no_training: Make the table from records alone, without any data set, and name the lines
            that have none.
        line: Train only this line; repeat for several. The others are taken from the records.
        out: Folder for the table as JSON and Markdown, and the figure. Default: as --runs.
    """
    from soundspot.reproduce import runs as known
    from soundspot.reproduce.experiments import check_lines, find_table
    from soundspot.reproduce.results import write_table

    check_lines(find_table(table), line or ())  # refuse wrong names first
    kept = records or runs / "records.jsonl.gz"
    media = None
    if no_training:
        trained_on, tested_on = known.find_recorded(kept, data, benchmark or ())
    else:
        media = known.find_media(data, test, benchmark or (), annotations)
        trained_on, tested_on = known.describe(media)
    count = seeds if seeds is not None else 1 if quick else 3
    plan = known.ReproductionPlan(
        *(table, trained_on, tested_on, media, count, quick, runs, kept, device),
        lines=tuple(line or ()),
    )
    write_table(plan, out or runs, say, own_command())


def complexity(*words: str, json: Flag = False) -> None:
    """Count the parameters and GFLOPs of a model, part by part.

    Args:
        words: A recipe (.yaml) or a model, then overrides such as model.cycles=3. Default: the
            paper's SSPL with PCM on VGG16 and VGGish.
        json: Print JSON instead of a table.
    """
    from soundspot.reproduce.complexity import measure, read_subject

    costs = measure(read_subject(words))
    if json:
        say(jsonlib.dumps(costs.summary()))
    else:
        result_console().print(costs.table().rich())
