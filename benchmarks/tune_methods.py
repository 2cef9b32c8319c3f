"""Tune the learning rate of every trained method with the same small budget, on ESC-VOC val alone.

    soundspot encode data/escvoc views=2
    python benchmarks/tune_methods.py data/escvoc               # all lines of `reproduce main`
    python benchmarks/tune_methods.py data/escvoc --shard 0/2   # half of them; 1/2 elsewhere
    python benchmarks/tune_methods.py data/escvoc --method dmc --method cavl

A trial trains one line of reproduce/tables/main.yaml, with its model settings, at one of three
learning rates: 80 steps of 64 pairs, 2 cached views, bfloat16, weights averaged with momentum 0.9,
seed 0. It is validated every 40 steps, and the better of its validations, by the mean of cIoU and
duets, counts. A line whose heads have a learning rate of their own (SSPL) keeps the ratio of the
two. Model settings that count training steps and do not fit into a trial are shortened in
proportion.

Each finished trial is appended as one line of JSON. Trials that are already in the file are
skipped, and an interrupted one resumes. The test split is never read.
"""

import argparse
import json
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from soundspot.common.config import choose, from_dict, non_defaults
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.predictions import validate
from soundspot.model.checkpoint import build_method
from soundspot.model.methods import METHODS
from soundspot.reproduce.experiments import find_table, lines_for, recipe_of
from soundspot.reproduce.runs import run_folder
from soundspot.training.loop import train
from soundspot.training.recipe import Recipe
from soundspot.training.run_folder import git_commit, read_log

RATES = (2e-4, 5e-4, 2e-3)
SEED = 0
STEP_COUNTS = ("warmup", "stage_one", "grow_every")  # model settings in training steps


@dataclass(frozen=True)
class Budget:
    """What every trial may spend."""

    steps: int = 80
    batch: int = 64
    views: int = 2
    average: float = 0.9
    amp: bool = True
    validate_every: int = 40


@dataclass(frozen=True)
class Trial:
    """A line at one learning rate; `shortened` has (before, after) of its step counts."""

    label: str
    recipe: Recipe
    shortened: dict

    def describe(self):
        """What identifies it in the file, besides the data."""
        recipe, config = self.recipe, self.recipe.train
        model = non_defaults(from_dict(METHODS[recipe.method].config, recipe.model))
        heads = {"lr_heads": config.lr_heads} if has_heads(recipe) else {}
        return {
            "method": recipe.method,
            "line": self.label,
            "settings": {
                "model": {key: model[key] for key in model if key not in ("c_v", "c_a")},
                "batch": config.batch,
                "views": recipe.features.views,
                "average": config.average,
                "amp": config.amp,
                "validate_every": config.validate_every,
                **heads,
            },
            "lr": config.lr,
            "steps": config.steps,
            "seed": config.seed,
        }


def has_heads(recipe):
    """Whether some of its parameters take train.lr_heads."""
    return bool(build_method(recipe.method, recipe.model).heads)


def lines_to_tune(pairs):
    """The lines of `main` that are trained differently: guidance is added after training."""
    trained = {}
    for line in lines_for(find_table("main"), pairs):
        if not line.guidance:
            recipe = recipe_of(line, pairs, SEED, quick=False)
            trained.setdefault(run_folder(Path(), recipe, pairs), (line, recipe))
    return list(trained.values())


def shorten(recipe, budget):
    """The model settings for the budget, and what had to be shortened."""
    ratio = budget.steps / recipe.train.steps
    counts = {key: recipe.model[key] for key in STEP_COUNTS if key in recipe.model}
    shortened = {
        key: (count, max(1, round(count * ratio)))
        for key, count in counts.items()
        if count >= budget.steps
    }
    return recipe.model | {key: after for key, (_, after) in shortened.items()}, shortened


def make_trials(pairs, budget, rates=RATES):
    """Every trial of every line, in the order of the table."""
    trials = []
    for line, recipe in lines_to_tune(pairs):
        model, shortened = shorten(recipe, budget)
        features = replace(recipe.features, views=budget.views)
        for rate in rates:
            config = replace(
                recipe.train,
                steps=budget.steps,
                validate_every=budget.validate_every,
                batch=budget.batch,
                average=budget.average,
                amp=budget.amp,
                lr=rate,
                lr_heads=rate * recipe.train.lr_heads / recipe.train.lr,
                patience=0,
                select="ciou+duets",
            )
            tuned = replace(recipe, model=model, features=features, train=config)
            trials.append(Trial(line.label, tuned, shortened))
    return trials


def select(trials, names, without):
    """The trials of the methods or lines asked for, by the name of either."""
    known = {name: None for trial in trials for name in (trial.recipe.method, trial.label)}
    for name in (*names, *without):
        choose("method or line", name, known)
    return [
        trial
        for trial in trials
        if (not names or {trial.recipe.method, trial.label} & set(names))
        and not {trial.recipe.method, trial.label} & set(without)
    ]


def read_finished(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def find(trial, fingerprint, finished):
    """The line of a finished trial in the file, if it is there."""
    wanted = trial.describe() | {"data_fingerprint": fingerprint}
    return next((row for row in finished if wanted.items() <= row.items()), None)


def run_trial(trial, folder):
    """Validation scores of the better validation, or why there are none."""
    try:
        state = train(trial.recipe, folder, validate)
    except SoundspotError as error:
        if "the loss is" not in str(error):
            raise
        return {"val": None, "error": str(error)}  # diverged: that rate is out
    log = read_log(folder)
    best = next(line for line in log if line["step"] == state.best_step)
    return {
        "best_step": state.best_step,
        "val": {name: round(best[f"val_{name}"], 4) for name in ("ciou", "auc", "duets")},
        "seconds": round(sum(line["seconds"] for line in log), 1),
    }


def run(trials, pairs, out, runs, command, say):
    """Run the trials that are not in the file, and append each as it finishes."""
    fingerprint, commit = pairs.fingerprint()[:16], git_commit()
    out.parent.mkdir(parents=True, exist_ok=True)
    for number, trial in enumerate(trials, 1):
        name = f"{number} of {len(trials)}: {trial.label}, lr {trial.recipe.train.lr:g}"
        if find(trial, fingerprint, read_finished(out)):  # read anew: another process adds to it
            say(f"{name}: finished before")
            continue
        say(name)
        for key, (before, after) in trial.shortened.items():
            say(f"  model.{key}={after} in place of {before}, which a trial has no room for")
        folder, began = run_folder(runs, trial.recipe, pairs), time.monotonic()
        found = run_trial(trial, folder)
        row = {
            **trial.describe(),
            "shortened": trial.shortened,
            **found,
            "wall_seconds": round(time.monotonic() - began, 1),
            "command": command,
            "commit": commit,
            "data_fingerprint": fingerprint,
        }
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        shutil.rmtree(folder)


def mean_score(row):
    """What learning rates are chosen by; a diverged trial is below all others."""
    return (row["val"]["ciou"] + row["val"]["duets"]) / 2 if row["val"] else -1.0


def summarize(trials, fingerprint, finished):
    """The chosen learning rate of every line with a finished trial."""
    table = Table("line", "method", "lr", "cIoU", "AUC", "duets", "trials")
    for label in dict.fromkeys(trial.label for trial in trials):
        of_line = [trial for trial in trials if trial.label == label]
        rows = [row for trial in of_line if (row := find(trial, fingerprint, finished))]
        if not rows:
            continue
        best = max(rows, key=mean_score)
        names = ("ciou", "auc", "duets")
        scores = [f"{best['val'][name]:.3f}" if best["val"] else "-" for name in names]
        count = f"{len(rows)} of {len(of_line)}"
        table.add_row(label, best["method"], f"{best['lr']:g}", *scores, count)
    return table


def parse_shard(text):
    try:
        index, count = (int(part) for part in text.split("/"))
        if 0 <= index < count:
            return index, count
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected a shard such as 0/2, got {text}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", type=Path, help="ESC-VOC, prepared and encoded")
    parser.add_argument("--method", action="append", default=[], help="only this; repeatable")
    parser.add_argument("--without", action="append", default=[], help="not this; repeatable")
    parser.add_argument("--shard", type=parse_shard, default=(0, 1), help="K/N, K counted from 0")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="the same for all")
    parser.add_argument("--steps", type=int, default=80, help="fewer only to try the script")
    parser.add_argument("--batch", type=int, default=64, help="fewer only to try the script")
    parser.add_argument("--runs", type=Path, default=Path("runs/tuning"), help="unfinished trials")
    parser.add_argument("-o", "--out", type=Path, default=Path("results/method_tuning.jsonl"))
    asked = parser.parse_args(arguments)
    say = Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print
    budget = Budget(asked.steps, asked.batch, validate_every=max(1, asked.steps // 2))
    command = " ".join(["python", *(sys.argv if arguments is None else arguments)])
    try:
        pairs = PairSet.open(asked.pairs)
        trials = select(make_trials(pairs, budget, asked.rates), asked.method, asked.without)
        index, count = asked.shard
        run(trials[index::count], pairs, asked.out, asked.runs, command, say)
    except SoundspotError as error:
        raise SystemExit(f"{error}") from None
    Console().print(summarize(trials, pairs.fingerprint()[:16], read_finished(asked.out)))


if __name__ == "__main__":
    main()
