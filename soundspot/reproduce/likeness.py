"""Figs. 2 and S2 on a set without boxes, such as MUSIC: how alike the maps of one frame are.

The paper says that negatives of the frame's own class make its localization ambiguous. Without
boxes, this shows in the map of a frame under its own sound, compared with its map under another
sound of the same class, which should stay the same, and under a sound of another class, which
should differ. Likeness is the correlation of two maps.

Axes: n pairs, h w the map as a model made it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import Pair
from soundspot.data.pair_set import PairSet
from soundspot.evaluation import predictions
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.intervals import over_seeds
from soundspot.evaluation.listening import correlation_across_sounds
from soundspot.evaluation.report.tables import Table
from soundspot.reproduce import experiments, runs
from soundspot.reproduce.examples import Column, Examples
from soundspot.reproduce.runs import ReproductionPlan

SAME, OTHER = "same_class", "other_class"
SPLITS = ("test", "val")
SCORE = "likeness to the map under another sound of the same class"


@dataclass(frozen=True)
class Trial:
    """A frame and three sounds: its own, another of its class, and one of another class."""

    pair: Pair
    same: Pair
    other: Pair


def find_trials(pairs: PairSet) -> list[Trial]:
    """One trial per pair of the test split, or of val without one, whose class has several."""
    split = next((split for split in SPLITS if split in pairs.splits()), None)
    known = [pair for pair in pairs.select(split) if pair.cls and pair.audio] if split else []
    rng = np.random.default_rng(0)
    trials = []
    for pair in known:
        alike = [p for p in known if p.cls == pair.cls]
        others = [p for p in known if p.cls != pair.cls]
        if len(alike) > 1 and others:
            following = alike[(alike.index(pair) + 1) % len(alike)]
            trials.append(Trial(pair, following, others[rng.integers(len(others))]))
    if not trials:
        raise SoundspotError(
            f"{pairs.root} has no boxes, and too few held-out pairs with a class to compare maps: "
            "at least two of one class and one of another are needed in test or val"
        )
    return trials


def reproduce_likeness(plan: ReproductionPlan, say: Callable[[str], None]) -> dict[str, Any]:
    """Train what is missing, compare the maps of every run, and collect plain values for JSON."""
    experiment = experiments.find_table(plan.name)
    trials = find_trials(plan.pairs)
    entries, not_run = [], []
    for line in experiments.lines_for(experiment, plan.pairs):
        seeds: list[dict[str, Any]] = []
        for seed in experiments.seeds_of(line, plan.pairs, plan.seeds):
            recipe = experiments.recipe_of(line, plan.pairs, seed, plan.quick)
            folder = runs.run_folder(plan.runs, recipe, plan.pairs)
            if plan.for_line(line.label).no_training and not runs.is_finished(folder):
                continue
            say(f"{line.label}, seed {seed}: {folder}")
            run = runs.train_missing(recipe, folder, say, plan.device)
            _, likeness = compare_maps(folder, plan, trials)
            means = {name: _mean(values) for name, values in likeness.items()}
            seeds.append({"seed": seed, "run": folder.name, "steps": run.steps} | means)
        if not seeds:
            not_run.append(line.label)
            continue
        entry: dict[str, Any] = {"label": line.label, "guidance": line.guidance, "seeds": seeds}
        for name in (SAME, OTHER):
            known = [seed[name] for seed in seeds if seed[name] is not None]
            entry[name] = asdict(over_seeds(known)) if known else None
        entries.append(entry)
    runs.check_some(entries, plan)
    found = {"pairs": len(trials), "lines": entries, "not_run": not_run}
    return runs.describe(plan, experiment) | found


def _mean(likeness: Float[np.ndarray, "n"]) -> float | None:
    """The mean over the pairs whose maps are not flat; None if all are."""
    known = likeness[np.isfinite(likeness)]
    return float(known.mean()) if len(known) else None


def compare_maps(
    folder: Path, plan: ReproductionPlan, trials: list[Trial]
) -> tuple[Float[np.ndarray, "n h w"], dict[str, Float[np.ndarray, "n"]]]:
    """The maps of a run under the frames' own sounds, and their likeness to the others.

    The likeness is NaN where a map is flat.
    """
    model = predictions.open_model(folder, plan.device)
    sounds = {
        "own": [trial.pair for trial in trials],
        SAME: [trial.same for trial in trials],
        OTHER: [trial.other for trial in trials],
    }
    frames = [trial.pair.frame for trial in trials]
    paths = {name: [str(pair.audio) for pair in heard] for name, heard in sounds.items()}
    every = [path for names in paths.values() for path in names]
    features = predictions.open_features(model, plan.pairs, frames, every)
    maps = {
        name: predictions.maps_by_cycle(model, features, frames, features.sound(heard))[-1]
        for name, heard in paths.items()
    }
    groups = [trial.pair.id for trial in trials] * 2
    likeness = {
        name: correlation_across_sounds(np.concatenate([maps["own"], maps[name]]), groups)
        for name in (SAME, OTHER)
    }
    return maps["own"], likeness


def likeness_examples(results: Mapping[str, Any], plan: ReproductionPlan) -> Examples:
    """The maps of the first seed of every line, scored by the likeness within the class."""
    trials = find_trials(plan.pairs)
    columns = []
    for line in results["lines"]:
        maps, likeness = compare_maps(plan.runs / line["seeds"][0]["run"], plan, trials)
        columns.append(Column(line["label"], maps, np.nan_to_num(likeness[SAME])))
    scenes = [
        BenchmarkItem(t.pair.id, t.pair.frame, str(t.pair.audio), (), t.pair.cls) for t in trials
    ]
    return Examples(plan.pairs, scenes, columns, SCORE)


def as_table(results: Mapping[str, Any]) -> Table:
    """The printed table."""
    header = ("", "steps", "seeds", "same class", "another class", "difference")
    body = []
    for line in results["lines"]:
        if line[SAME] is None or line[OTHER] is None:
            likeness = ["–"] * 3
        else:
            same, other = line[SAME]["mean"], line[OTHER]["mean"]
            likeness = [f"{value:.3f}" for value in (same, other, same - other)]
        steps = f"{line['seeds'][0]['steps']:,}"
        body.append((line["label"], steps, str(len(line["seeds"])), *likeness))
    note = (
        f"{results['note']} There are no boxes: the numbers are the likeness (correlation) of a "
        "frame's map under its own sound to its map under another sound of the same class, and "
        f"under a sound of another class; {results['pairs']:,} held-out pairs."
    )
    return Table(f"{results['title']} ({results['data']})", note, header, tuple(body))
