"""The training loop: draw, forward, backward, step; validate, keep the best.

A run is a folder: recipe.json, log.jsonl (one line per validation), best.safetensors + .json,
last.*, state.pt, from which an interrupted run resumes with exactly the same numbers, and at the
end result.json, which is small enough to commit.
"""

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32
from rich.console import Console
from rich.progress import Progress

from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import LOCK, explain_write_errors, locked, remove_leftovers, write_text
from soundspot.data.pair_set import PairSet
from soundspot.features.cache import AnyCache, open_encoded
from soundspot.features.spec import load_encoders
from soundspot.model import checkpoint
from soundspot.model.methods.method import Batch, Method, MethodOutput
from soundspot.parallel.devices import AUTO, multiplies_bfloat16
from soundspot.training import distributed
from soundspot.training.data import TrainingData, batches, steps_per_epoch, whole_split
from soundspot.training.loggers import open_loggers
from soundspot.training.optimizer import WeightAverage, make_optimizer
from soundspot.training.recipe import Recipe, check_same, check_selection
from soundspot.training.run_folder import (
    LOG,
    RESULT,
    STATE,
    TrainState,
    load_state,
    provenance,
    read_log,
    save_state,
)

Validate = Callable[[Method, AnyCache, PairSet], dict[str, float]]
Teach = Callable[[PairSet], Float32[np.ndarray, "n h w"]]


def train(
    recipe: Recipe,
    run: Path,
    validate: Validate,
    on_validation: Callable[[Path], None] = lambda run: None,
    stop_after: int | None = None,
    device: str = AUTO,
    command: str = "",
    teach: Teach | None = None,
) -> TrainState:
    """Train a recipe, or resume it from its run folder.

    Args:
        recipe: The experiment.
        run: The run's folder.
        validate: Scores the model on the validation split of a set with boxes: "ciou", "auc" and,
            if there are duets, "duets". Not called if train.select is "loss".
        on_validation: Called by rank 0 after every validation, to draw curves.
        stop_after: Return after this many validations in total, as if interrupted.
        device: As `choose_device` takes it.
        command: What repeats this training; stored in its checkpoints.
        teach: Gives the teacher's maps of the training frames, if the recipe names a teacher.
    """
    with distributed.join_world(device) as world, ExitStack() as lock:
        made = _Run(recipe, run, validate, on_validation, world, lock, command, teach)
        return made.train(stop_after)


class _Run:
    """Everything that one training works with, so that the loop below can be read at a glance."""

    def __init__(
        self,
        recipe: Recipe,
        run: Path,
        validate: Validate,
        on_validation: Callable[[Path], None],
        world: distributed.World,
        lock: ExitStack,
        command: str,
        teach: Teach | None,
    ) -> None:
        self.recipe, self.config, self.run, self.world = recipe, recipe.train, run, world
        self.validate, self.on_validation = validate, on_validation
        self.console = Console(stderr=True, quiet=not world.first)
        self.pairs = PairSet.open(recipe.pairs)
        spec = recipe.features
        self.cache = open_encoded(self.pairs, spec)
        encoders = None if spec.views else load_encoders(spec, world.device)
        taught = None if teach is None else torch.from_numpy(teach(self.pairs))
        self.data = TrainingData(
            self.pairs, "train", self.cache, encoders, self.config.seed, taught
        )
        self.steps_per_epoch = steps_per_epoch(self.data, self.config.batch)
        self.total_steps = self.config.steps or self.config.epochs * self.steps_per_epoch
        distributed.check_share(self.config.batch, world, self.config.accumulate)
        check_selection(recipe, self.pairs)
        torch.manual_seed(self.config.seed)
        method = checkpoint.build_method(recipe.method, recipe.model)
        if self.config.accumulate > 1 and not method.per_pair:
            raise SoundspotError(
                f"the loss of {recipe.method} compares the pairs of a batch and is no sum over "
                "parts: set train.accumulate=1, and share a large batch among processes "
                "(torchrun)"
            )
        method.prepare(self._hear)
        self.method: Method = method.to(world.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = WeightAverage(self.method, self.config.average)
        self.optimizer = make_optimizer(self.method, self.config)
        self.state = TrainState()
        self.rounds = (
            self.config.amp and multiplies_bfloat16(world.device) and not self.method.full_precision
        )
        self.provenance = provenance(recipe, self.pairs, self.cache, command)
        self.provenance["products"] = "bfloat16" if self.rounds else "float32"
        self.interrupted = False
        self._claim_folder(lock)
        self.called = distributed.wrap(self.method, world)
        self.log = open_loggers(run, recipe, self.console) if world.first else None
        if world.size > 1:
            share = self.config.batch // world.size
            self.console.print(f"{world.size} processes with {share} pairs of each batch")

    @torch.no_grad()
    def _hear(self, waveforms: torch.Tensor) -> torch.Tensor:
        """What the frozen audio encoder makes of sounds that are not in the cache."""
        heard: torch.Tensor = load_encoders(self.recipe.features).audio(waveforms)
        return heard

    def train(self, stop_after: int | None) -> TrainState:
        """Train until the last step, until patience runs out, or until interrupted."""
        with self._signals():
            while not self._done():
                if stop_after is not None and self.state.validations >= stop_after:
                    return self.state
                self._train_until(self._next_validation())
                self._validate_and_save()
                self._stop_if_interrupted()
            if self.world.first:
                self._write_result()
        self.console.print(
            f"best step {self.state.best_step} by {self.config.select}: "
            f"{self.run / 'best.safetensors'}",
            soft_wrap=True,
        )
        return self.state

    def _done(self) -> bool:
        state, patience = self.state, self.config.patience
        out_of_patience = 0 < patience <= state.validations - state.best_validation
        return out_of_patience or (state.step >= self.total_steps and not state.counted)

    def _next_validation(self) -> int:
        """The step after which to validate; by default the last of the epoch."""
        every = self.config.validate_every or self.steps_per_epoch
        last = self.state.step - self.state.counted  # a run may stop just before validating
        return min((last // every + 1) * every, self.total_steps)

    @property
    def _epoch(self) -> int | float:
        """Epochs done; an int unless validation is in mid-epoch."""
        whole, rest = divmod(self.state.step, self.steps_per_epoch)
        return round(self.state.step / self.steps_per_epoch, 2) if rest else whole

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Finish the current step before an interrupt or a termination takes effect."""
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
        # A signal reaches the processes at different steps, or only one of them.
        if distributed.any_in_world(self.interrupted, self.world):
            self._save_state()
            self.console.print(f"saved; the same command resumes from {self.run / STATE}")
            raise KeyboardInterrupt

    def _train_until(self, last_step: int) -> None:
        began, before = time.monotonic(), self.state.seconds
        saved = began
        self.called.train()
        hidden = not (self.world.first and sys.stderr.isatty())
        with Progress(console=self.console, transient=True, disable=hidden) as bar:
            task = bar.add_task("", total=self.total_steps, completed=self.state.step)
            for batch in self._batches(last_step):
                loss = self._step(batch)
                bar.update(task, advance=1, description=f"loss {loss:.4f}")
                now = time.monotonic()
                self.state.seconds = before + now - began
                if now - saved > 60 * self.config.save_minutes:
                    self._save_state()
                    saved = now
                self._stop_if_interrupted()

    def _batches(self, last_step: int) -> Iterator[Batch]:
        """The batches from the current step to `last_step`, across epochs."""
        while self.state.step < last_step:
            epoch, start = divmod(self.state.step, self.steps_per_epoch)
            stop = min(self.steps_per_epoch, start + last_step - self.state.step)
            yield from batches(
                self.data, epoch, self.config.batch, start, stop, self.world.rank, self.world.size
            )

    def _on_device(self, batch: Batch) -> Batch:
        return batch.each(lambda tensor: tensor.to(self.world.device, non_blocking=True))

    def _gradients(self, batch: Batch) -> dict[str, float]:
        """Add up the gradients of a batch, in parts if asked; the mean of what they report."""
        count, reported = self.config.accumulate, dict[str, float]()
        for number in range(count):
            part = self._on_device(batch.each(itemgetter(slice(number, None, count))))
            waits = number + 1 < count and self.world.size > 1
            with self.called.no_sync() if waits else nullcontext():  # type: ignore[operator]
                with torch.autocast(part.f_a.device.type, torch.bfloat16, enabled=self.rounds):
                    output: MethodOutput = self.called(part)
                torch.autograd.backward(output.loss / count)
            for name, value in {"loss": output.loss.detach(), **output.report}.items():
                reported[name] = reported.get(name, 0.0) + value.item() / count
        return distributed.mean_over_world(reported, self.world)

    def _step(self, batch: Batch) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        reported = self._gradients(batch)
        loss = reported["loss"]
        if not math.isfinite(loss):
            saved = (self.run / STATE).exists()
            kept = f" (the state of an earlier step is kept in {self.run})" if saved else ""
            raise SoundspotError(f"the loss is {loss}: lower train.lr and train.lr_heads{kept}")
        for parameter in self.method.resting:  # momentum and weight decay would move them on
            parameter.grad = None
        self.optimizer.step()
        self.average.update(self.method)
        for name, value in reported.items():
            self.state.totals[name] = self.state.totals.get(name, 0.0) + value
        self.state.step += 1
        self.state.counted += 1
        return loss

    def _validate_and_save(self) -> None:
        """Validate, keep the best, write the log; save the state last.

        If the process is killed before that, the resumed run cuts the log and repeats the steps.
        """
        state = self.state
        line: dict[str, Any] = {"epoch": self._epoch, "step": state.step}
        line |= {f"train_{k}": total / state.counted for k, total in state.totals.items()}
        with self.average.applied(self.method):
            self.method.eval()
            scores = self._validation() if self.world.first else {}
            # All ranks use the same scores: their running batch-norm statistics may differ.
            scores = distributed.broadcast_from_rank0(scores, self.world)
            line |= {f"val_{k}": v for k, v in scores.items()}
            score = self._score(line)
            state.validations, state.totals, state.counted = state.validations + 1, {}, 0
            better = score > state.best_score
            if better:
                state.best_score, state.best_step = score, state.step
                state.best_validation = state.validations
            line |= {"seconds": round(state.seconds, 2), "best": better}
            if self.world.first:
                self._save_model("last", line)
                if better:
                    self._save_model("best", line)
        state.seconds = 0.0
        if self.world.first:
            path = self.run / LOG
            with explain_write_errors(path), path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
            self.on_validation(self.run)
        if self.log is not None:
            self.log(line)
        self._save_state()
        self._say(line)

    def _validation(self) -> dict[str, float]:
        if self.config.select != "loss":
            return self.validate(self.method, self.cache, self.pairs)
        data = TrainingData(self.pairs, "val", self.cache, self.data.encoders, self.config.seed)
        with torch.no_grad():
            losses = [
                (len(batch.cls), self.method(self._on_device(batch)).loss.item())
                for batch in whole_split(data, self.config.batch)
            ]
        return {"loss": sum(n * loss for n, loss in losses) / sum(n for n, _ in losses)}

    def _score(self, line: dict[str, Any]) -> float:
        names = [f"val_{name}" for name in self.config.select.split("+")]
        sign = -1 if self.config.select == "loss" else 1
        return sign * sum(float(line[name]) for name in names) / len(names)

    def _save_model(self, name: str, line: dict[str, Any]) -> None:
        card = checkpoint.Card(
            method=self.recipe.method,
            config=self.recipe.model,
            features=self.recipe.features,
            epoch=int(self._epoch),
            step=self.state.step,
            metrics={k: v for k, v in line.items() if k.startswith("val_")},
            provenance=self.provenance,
        )
        checkpoint.save(self.run / f"{name}.safetensors", self.method, card)

    def _write_result(self) -> None:
        """Write the small file to keep of a run: what made it, and its log."""
        log = read_log(self.run)
        result = {
            "provenance": self.provenance,
            "recipe": to_dict(self.recipe),
            "steps": self.state.step,
            "steps_per_epoch": self.steps_per_epoch,
            "best_step": self.state.best_step,
            "best_epoch": log[self.state.best_validation - 1]["epoch"],
            "best_score": self.state.best_score,
            "epochs": log,
        }
        write_text(self.run / RESULT, json.dumps(result, indent=1) + "\n")

    def _save_state(self) -> None:
        if self.world.first:
            save_state(self.run / STATE, self.state, self.method, self.average, self.optimizer)

    def _claim_folder(self, lock: ExitStack) -> None:
        """Start a new run folder, or load the state of the run in it."""
        if self.world.first:
            # Two trainings in one folder would destroy each other's state.
            busy = f"another process is training in {self.run}"
            lock.enter_context(locked(self.run / LOCK, busy))
            remove_leftovers(self.run)
        stored = self.run / "recipe.json"
        if stored.exists():
            check_same(stored, self.recipe)
        if (self.run / STATE).exists():
            parts = self.method, self.average, self.optimizer
            device, steps = self.world.device, self.steps_per_epoch
            self.state = load_state(self.run / STATE, *parts, device, steps)
            self.console.print(f"resuming after step {self.state.step}")
        elif (self.run / RESULT).exists():
            raise SoundspotError(f"{self.run} was tidied: it cannot be trained further")
        if not self.world.first:
            return
        write_text(stored, json.dumps(to_dict(self.recipe), indent=1) + "\n")
        # A killed process may have left a line whose state was never saved.
        lines = read_log(self.run, self.state.validations)
        if (self.run / LOG).exists():
            write_text(self.run / LOG, "".join(json.dumps(line) + "\n" for line in lines))

    def _say(self, line: dict[str, Any]) -> None:
        numbers = "  ".join(
            f"{k} {v:.4f}"
            for k, v in line.items()
            if isinstance(v, float) and k not in ("epoch", "seconds")
        )
        mark = "  *" if line["best"] else ""
        self.console.print(
            f"step {line['step']}  {numbers}  {line['seconds']:.0f} s{mark}", soft_wrap=True
        )
