"""The training loop on one page: draw, forward, backward, step; validate, keep the best, go on.

A run is a folder: recipe.json, log.jsonl (a line an epoch), best.safetensors + .json, last.*,
state.pt, from which an interrupted run goes on with the very same numbers, and at the end
result.json, small enough to be committed.
"""

import json
import math
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import atomic_write, write_text
from soundspot.data.pair_set import PairSet
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.spec import load_encoders
from soundspot.model import checkpoint
from soundspot.model.methods.method import Batch, Method
from soundspot.training.average import WeightAverage
from soundspot.training.data import TrainingData, batches, steps_per_epoch, whole_split
from soundspot.training.distributed import (
    World,
    broadcast_from_rank0,
    check_share,
    join_world,
    mean_over_world,
    wrap,
)
from soundspot.training.optimiser import make_optimiser, set_rates
from soundspot.training.provenance import provenance
from soundspot.training.recipe import (
    Recipe,
    check_same,
    check_selection,
    read_stored,
    uses_batch_statistics,
)

Validate = Callable[[Method, FeatureCache, PairSet], dict[str, float]]
STATE = "state.pt"
LOG = "log.jsonl"


@dataclass
class TrainState:
    """How far a run has come; saved with its state."""

    epoch: int = 0
    step: int = 0
    best_epoch: int = 0
    best_score: float = -math.inf
    seconds: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)


def train(
    recipe: Recipe,
    run: Path,
    validate: Validate,
    on_epoch: Callable[[Path], None] = lambda run: None,
    stop_after: int | None = None,
) -> TrainState:
    """Train a recipe, or go on with it where its run folder stopped.

    Args:
        recipe: The experiment.
        run: Where everything goes.
        validate: Scores the model on the validation split of a set with boxes: "ciou", "auc" and,
            where there are duets, "duets". Not called when train.select is "loss".
        on_epoch: Called by the first process after every epoch, to draw curves.
        stop_after: End this call after so many epochs in all, as if interrupted.
    """
    with join_world() as world:
        running = _Run(recipe, run, validate, on_epoch, world)
        try:
            return running.go(stop_after)
        finally:
            running.lock.release()


class _Run:
    """The moving parts of one training, so that the loop below can be read at a glance."""

    def __init__(
        self,
        recipe: Recipe,
        run: Path,
        validate: Validate,
        on_epoch: Callable[[Path], None],
        world: World,
    ) -> None:
        self.recipe, self.config, self.run, self.world = recipe, recipe.train, run, world
        self.validate, self.on_epoch = validate, on_epoch
        self.console = Console(stderr=True, quiet=not world.first)
        self.pairs = PairSet.open(recipe.pairs)
        spec = recipe.features
        self.cache = FeatureCache.open(cache_folder(self.pairs, spec), self.pairs, spec)
        encoders = None if spec.views else load_encoders(spec, world.device)
        self.data = TrainingData(self.pairs, "train", self.cache, encoders, self.config.seed)
        self.steps = steps_per_epoch(self.data, self.config.batch)
        check_share(self.config.batch, world)
        check_selection(recipe, self.pairs)
        torch.manual_seed(self.config.seed)
        method = checkpoint.build_method(recipe.method, recipe.model)
        self.method: Method = method.to(world.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = WeightAverage(self.method, self.config.average)
        self.optimiser = make_optimiser(self.method, self.config)
        self.progress = TrainState()
        self.provenance = provenance(recipe, self.pairs, self.cache)
        self.interrupted = False
        self.lock = FileLock(run / ".lock")
        self._claim_folder()
        self.called = wrap(self.method, world)
        if self.config.compile:
            self.called.compile()
        if world.size > 1 and world.device.type == "cpu":
            self.console.print(f"{world.size} CPU processes: batch norm is per process")
        if world.size > 1 and uses_batch_statistics(recipe):
            self.console.print("the statistics of the cross-modal term are per process too")

    def go(self, stop_after: int | None) -> TrainState:
        """Epochs until the last, until patience ends, or until interrupted."""
        with self._signals():
            while self.progress.epoch < self.config.epochs and not self._patience_is_out():
                if stop_after is not None and self.progress.epoch >= stop_after:
                    return self.progress
                self._epoch()
            if self.world.first:
                self._write_result()
        self.console.print(
            f"best epoch {self.progress.best_epoch} by {self.config.select}: "
            f"{self.run / 'best.safetensors'}",
            soft_wrap=True,
        )
        return self.progress

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and termination wait for the end of the step: a state is never half a step."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: object) -> None:
            self.interrupted = True

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop_if_interrupted(self) -> None:
        if not self.interrupted:
            return
        self._save_state()
        self.console.print(f"saved; the same command goes on from {self.run / STATE}")
        raise KeyboardInterrupt

    def _epoch(self) -> None:
        began, before = time.monotonic(), self.progress.seconds
        saved = began
        self.called.train()
        with self._bar() as bar:
            task = bar.add_task("", total=self.steps, completed=self.progress.step, loss="")
            for batch in batches(
                self.data,
                self.progress.epoch,
                self.config.batch,
                self.progress.step,
                self.world.rank,
                self.world.size,
            ):
                loss = self._step(batch)
                self.progress.step += 1
                bar.update(task, advance=1, loss=f"loss {loss:.4f}")
                now = time.monotonic()
                self.progress.seconds = before + now - began
                if now - saved > 60 * self.config.save_minutes:
                    self._save_state()
                    saved = now
                self._stop_if_interrupted()
        self._end_of_epoch()
        self._stop_if_interrupted()

    def _on_device(self, batch: Batch) -> Batch:
        return Batch(*(tensor.to(self.world.device, non_blocking=True) for tensor in batch))

    def _step(self, batch: Batch) -> float:
        device = self.world.device
        done = self.progress.epoch + self.progress.step / self.steps
        set_rates(self.optimiser, self.config, done / self.config.epochs)
        self.optimiser.zero_grad(set_to_none=True)
        amp = self.config.amp and device.type == "cuda"
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            output = self.called(self._on_device(batch))
        loss = float(output.loss.item())
        if not math.isfinite(loss):
            kept = f" (the state of an earlier step is kept in {self.run})" if self._saved() else ""
            raise SoundspotError(
                f"the loss is {loss} in epoch {self.progress.epoch + 1}, step "
                f"{self.progress.step + 1}; lower train.lr and train.lr_heads{kept}"
            )
        output.loss.backward()
        self.optimiser.step()
        self.average.update(self.method)
        for name, value in {"loss": output.loss.detach(), **output.report}.items():
            self.progress.totals[name] = self.progress.totals.get(name, 0.0) + value.item()
        return loss

    def _saved(self) -> bool:
        return (self.run / STATE).exists()

    def _end_of_epoch(self) -> None:
        progress = self.progress
        line: dict[str, Any] = {"epoch": progress.epoch + 1}
        means = {name: total / self.steps for name, total in progress.totals.items()}
        line |= {f"train_{k}": v for k, v in mean_over_world(means, self.world).items()}
        with self.average.applied(self.method):
            self.method.eval()
            found = self._validation() if self.world.first else {}
            # One judgement for all: running statistics of batch norm may differ by process.
            line |= {f"val_{k}": v for k, v in broadcast_from_rank0(found, self.world).items()}
            score = self._score(line)
            progress.epoch, progress.step, progress.totals = progress.epoch + 1, 0, {}
            better = score > progress.best_score
            if better:
                progress.best_score, progress.best_epoch = score, progress.epoch
            line |= {"seconds": round(progress.seconds, 2), "best": better}
            if self.world.first:
                self._save_model("last", line)
                if better:
                    self._save_model("best", line)
        progress.seconds = 0.0
        # The state comes last: a kill before it repeats the epoch, and resuming cuts the log.
        if self.world.first:
            with (self.run / LOG).open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            self.on_epoch(self.run)
        self._save_state()
        self._say(line)

    def _validation(self) -> dict[str, float]:
        if self.config.select != "loss":
            return self.validate(self.method, self.cache, self.pairs)
        data = TrainingData(self.pairs, "val", self.cache, self.data.encoders, self.config.seed)
        with torch.no_grad():
            found = [
                (len(batch.cls), self.method(self._on_device(batch)).loss.item())
                for batch in whole_split(data, self.config.batch)
            ]
        return {"loss": sum(n * loss for n, loss in found) / sum(n for n, _ in found)}

    def _score(self, line: dict[str, Any]) -> float:
        names = [f"val_{name}" for name in self.config.select.split("+")]
        sign = -1 if self.config.select == "loss" else 1
        return sign * sum(float(line[name]) for name in names) / len(names)

    def _patience_is_out(self) -> bool:
        waited = self.progress.epoch - self.progress.best_epoch
        return 0 < self.config.patience <= waited and self.progress.epoch > 0

    def _save_model(self, name: str, line: dict[str, Any]) -> None:
        card = checkpoint.Card(
            method=self.recipe.method,
            config=self.recipe.model,
            features=self.recipe.features,
            epoch=self.progress.epoch,
            metrics={k: v for k, v in line.items() if k.startswith("val_")},
            provenance=self.provenance,
        )
        checkpoint.save(self.run / f"{name}.safetensors", self.method, card)

    def _write_result(self) -> None:
        """The small file to keep of a run: who made it, and its course."""
        lines = (self.run / LOG).read_text(encoding="utf-8").splitlines()
        result = {
            "provenance": self.provenance,
            "recipe": to_dict(self.recipe),
            "best_epoch": self.progress.best_epoch,
            "best_score": self.progress.best_score,
            "epochs": [json.loads(line) for line in lines],
        }
        write_text(self.run / "result.json", json.dumps(result, indent=1) + "\n")

    def _save_state(self) -> None:
        if not self.world.first:
            return
        state = {
            "method": self.method.state_dict(),
            "average": self.average.state,
            "optimiser": self.optimiser.state_dict(),
            "progress": vars(self.progress),
        }
        with atomic_write(self.run / STATE) as part:
            torch.save(state, part)

    def _claim_folder(self) -> None:
        """Start a new run folder or load the state of the run that is in it."""
        if self.world.first:
            self.run.mkdir(parents=True, exist_ok=True)
            try:  # two trainings in one folder would destroy each other's state
                self.lock.acquire(timeout=0)
            except Timeout as error:
                raise SoundspotError(f"another process is training in {self.run}") from error
        stored = self.run / "recipe.json"
        if stored.exists():
            check_same(read_stored(stored), self.recipe, self.run)
        if self._saved():
            self._load_state()
        if not self.world.first:
            return
        write_text(stored, json.dumps(to_dict(self.recipe), indent=1) + "\n")
        log = self.run / LOG  # a kill may have left a line whose state was never saved
        if log.exists():
            lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
            write_text(log, "".join(lines[: self.progress.epoch]))

    def _load_state(self) -> None:
        path = self.run / STATE
        try:
            state = torch.load(path, map_location=self.world.device, weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise SoundspotError(f"{path} is damaged; delete {self.run} to start again") from error
        self.method.load_state_dict(state["method"])
        self.average.state = state["average"]
        self.optimiser.load_state_dict(state["optimiser"])
        self.progress = TrainState(**state["progress"])
        self.console.print(
            f"going on from epoch {self.progress.epoch + 1}, step {self.progress.step + 1}"
        )

    def _bar(self) -> Progress:
        return Progress(
            TextColumn(f"epoch {self.progress.epoch + 1}/{self.config.epochs}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not (self.world.first and sys.stderr.isatty()),
        )

    def _say(self, line: dict[str, Any]) -> None:
        numbers = "  ".join(
            f"{k} {v:.4f}" for k, v in line.items() if isinstance(v, float) and k != "seconds"
        )
        mark = "  *" if line["best"] else ""
        self.console.print(
            f"epoch {line['epoch']}  {numbers}  {line['seconds']:.0f} s{mark}", soft_wrap=True
        )
