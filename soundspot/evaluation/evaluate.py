"""Evaluation from names and folders to results and a report."""

from collections.abc import Sequence
from pathlib import Path

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.benchmarks import BENCHMARKS, HARD, MIXED, Benchmark, find_benchmark
from soundspot.evaluation.report import check_folder, write_report
from soundspot.evaluation.runner import Asked, Evaluation, score_benchmark
from soundspot.evaluation.saved_maps import SavedMaps
from soundspot.inference.models import open_model
from soundspot.parallel.devices import AUTO

DATA = Path("data")


def evaluate(
    models: Sequence[str | Path],
    benchmarks: Sequence[str],
    *,
    data: str | Path | None = None,
    annotations: str | Path | None = None,
    maps: Sequence[str | Path] = (),
    cycles: int | None = None,
    guidance: float = 0.0,
    outline: bool = False,
    unseen: bool = False,
    out: str | Path | None = None,
    device: str = AUTO,
    command: str = "",
) -> Evaluation:
    """Score models on benchmarks, alongside trivial baselines, like `soundspot evaluate`.

    Args:
        models: Names, checkpoints or run folders; if empty, only the baselines are scored.
        benchmarks: Names such as "escvoc", "escvoc-duets", "vggss", "flickr".
        data: Pair set with the media; default for ESC-VOC: data/escvoc.
        annotations: Folder of the benchmark's annotation files.
        maps: Folders of maps saved by other programs.
        cycles: T of models with a PCM, if not the one they were trained with.
        guidance: Weight of object guidance; if not 0, each model is also scored with its map
            blended with what stands out in the picture.
        outline: Also score each model with the boxes around the outlines of its maps.
        unseen: Also score models under silence, noise and sounds of other classes, at one
            threshold, and how they find frames by sound and sounds by frame (ESC-VOC only).
        out: Folder for report.json and report.html.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda" or "mps".
        command: What repeats this evaluation; the report tells it.

    Returns:
        One result per benchmark, each with a row for every contender and protocol.

    Example:
        >>> done = soundspot.evaluate([], ["escvoc-val"], data="pairs")
        >>> done.results[0].coverage
        'evaluated 5 of 331 pairs'
    """
    # Refuse bad names and folders before any model is loaded.
    named = [find_benchmark(name) for name in benchmarks]
    chosen = list({benchmark.name: benchmark for benchmark in named}.values())
    if not chosen:
        raise SoundspotError(f"name a benchmark: {', '.join(BENCHMARKS)}")
    if not 0 <= guidance < 1:
        raise SoundspotError(f"the weight of guidance must be from 0 to below 1, got {guidance}")
    if (guidance or outline) and not models:
        raise SoundspotError("object guidance and outlines need a model")
    if out is not None:
        check_folder(Path(out))
    truths = None if annotations is None else Path(annotations)
    saved = [SavedMaps(folder) for folder in dict.fromkeys(map(Path, maps))]
    media = {benchmark.name: _pair_set(benchmark, data, bool(models)) for benchmark in chosen}
    opened = [open_model(name, device) for name in dict.fromkeys(map(str, models))]
    if cycles is not None and cycles < 1:
        raise SoundspotError(f"the PCM needs at least one pass, got {cycles} cycles")
    if cycles is not None and not any(model.trained_cycles for model in opened):
        raise SoundspotError(f"{cycles} cycles need a model with a PCM, but none has one")
    asked = Asked(cycles, guidance, outline, unseen)
    results = [score_benchmark(b, media[b.name], truths, asked, opened, saved) for b in chosen]
    done = Evaluation(truths, tuple(results), tuple(opened))
    if out is not None:
        write_report(done, Path(out), command)
    return done


def _pair_set(benchmark: Benchmark, data: str | Path | None, needed: bool) -> PairSet | None:
    """The pair set with a benchmark's media; None if there is none and none is needed."""
    parts = benchmark.name.split("-")
    usual = DATA / "-".join(parts[: 2 if benchmark.name in (*HARD, *MIXED) else 1])
    if data is not None:
        return PairSet.open(Path(data))
    if benchmark.split is not None and usual.is_dir():
        return PairSet.open(usual)
    if needed:
        raise SoundspotError(f"a model needs the pair set of {benchmark.name}: name it", "missing")
    return None
