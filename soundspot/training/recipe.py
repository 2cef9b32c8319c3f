"""A recipe: one experiment as frozen dataclasses, read from YAML with key=value overrides."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from soundspot.common.config import (
    BelowOne,
    Count,
    Positive,
    Range,
    Seed,
    Size,
    Weight,
    as_stored,
    choose,
    from_dict,
    nearest,
    override,
    read_typed,
    read_yaml,
    to_dict,
)
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods import METHODS


@dataclass(frozen=True)
class TrainConfig:
    """How to optimize.

    Attributes:
        epochs: Passes over the training pairs, at most.
        steps: Optimizer steps, at most; if not 0, it takes the place of `epochs`.
        validate_every: Steps between validations; 0 validates after every epoch.
        batch: Pairs per step, over all processes.
        accumulate: In how many parts a process computes its share of a batch, where memory is
            short; only for methods whose loss is a mean over pairs.
        lr_heads: lr_1 of Table S1, for the projection and prediction MLPs.
        lr: lr_2 of Table S1, for everything else.
        weight_decay: Weight decay of AdamW; the PCM's a_l and b_l have none.
        seed: Seed of the weights, the order, the views and the drawn sounds.
        select: The validation score that chooses the best weights: higher is better, except for
            the loss. "ciou+duets" is the mean of both.
        patience: Stop after this many validations without a better one; 0 never stops early.
        average: Momentum of a moving average of the weights, which is validated and saved instead
            of the weights themselves; 0 turns it off.
        save_minutes: Minutes between resumable states, at most.
        amp: Multiply in bfloat16 where precision allows it (autocast) and the hardware is faster at
            it: GPUs, and CPUs with AVX512-BF16 or AMX. Other CPUs multiply in float32.
        tensorboard: Write the log for TensorBoard too, into the run's folder.
    """

    epochs: Annotated[int, Range(1, 10**9)] = 100
    steps: Annotated[int, Range(0, 10**9)] = 0
    validate_every: Annotated[int, Range(0, 10**9)] = 0
    batch: Annotated[int, Range(2, 10**6)] = 256
    accumulate: Size = 1
    lr_heads: Positive = 2e-3
    lr: Positive = 5e-4
    weight_decay: Weight = 1e-4
    seed: Seed = 0
    select: Literal["ciou", "auc", "duets", "ciou+duets", "loss"] = "ciou"
    patience: Count = 10
    average: BelowOne = 0.0
    save_minutes: Annotated[float, Range(0)] = 5.0
    amp: bool = False
    tensorboard: bool = False

    retired: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"betas": [0.9, 0.999], "schedule": "constant", "compile": False}
    )


@dataclass(frozen=True)
class Recipe:
    """An experiment.

    Attributes:
        pairs: Folder of the pair set to learn from.
        method: A key of METHODS.
        model: The switches of the method's config class (see model/methods); c_v and c_a follow
            from the encoders.
        features: Encoders and views; see FeatureSpec.
        train: How to optimize.
        teacher: A model whose maps of the training frames a student learns from.
    """

    pairs: Path
    method: str = "sspl"
    model: dict[str, Any] = field(default_factory=dict)
    features: FeatureSpec = field(default_factory=FeatureSpec)
    train: TrainConfig = field(default_factory=TrainConfig)
    teacher: str = ""

    def __post_init__(self) -> None:
        """Fill in the channels and all defaults of the model, and check its switches."""
        known: dict[str, Any] = {"c_v": self.features.c_v, "c_a": self.features.c_a}
        for name, channels in known.items():
            if self.model.get(name, channels) != channels:
                raise ValueError(f"model.{name}={self.model[name]}, but its encoder has {channels}")
        method = choose("method", self.method, METHODS)
        joined = [encoder.channels for encoder in self.features.visual_encoders]
        if len(joined) > 1 and "parts" in {key.name for key in fields(method.config)}:
            known["parts"] = joined
        # With every default spelt out, a stored run keeps its meaning if a default changes.
        config = from_dict(method.config, {**self.model, **known}, "model")
        object.__setattr__(self, "model", to_dict(config))


def read_recipe(path: Path, assignments: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply overrides such as `train.epochs=3`."""
    return from_dict(Recipe, override(read_yaml(path), assignments))


def shipped_recipes() -> dict[str, Path]:
    """Name -> file of every recipe that ships: in the package, or in a clone beside it."""
    package = Path(__file__).parents[1]
    folders = (package / "recipes", package.parent / "recipes")
    files = sorted(next((f for f in folders if f.is_dir()), package).glob("*.yaml"))
    return {file.stem: file for file in files}


def find_recipe(name_or_path: str | Path) -> Path:
    """A recipe by its path, or by the name of one that ships.

    recipes/NAME.yaml, as the documentation writes it, also works outside a clone.
    """
    path = Path(name_or_path)
    named = path.parent in (Path(), Path("recipes")) and path.suffix in ("", ".yaml")
    if path.is_file() or not named:
        return path
    shipped = shipped_recipes()
    if path.stem not in shipped:
        raise SoundspotError(f"no recipe at {path}: {nearest(path.stem, list(shipped))}")
    return shipped[path.stem]


def title_of(path: Path) -> str:
    """The first sentence of a recipe's opening comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("# ") for line in comment).partition(". ")[0].rstrip(".")


def read_features(recipe: Path | None, assignments: Sequence[str] = ()) -> FeatureSpec:
    """The features of a recipe, or the default ones, with overrides such as `views=4`.

    As in a recipe, `features.views=4` is the same.
    """
    base = FeatureSpec() if recipe is None else read_recipe(recipe).features
    short = [assignment.removeprefix("features.") for assignment in assignments]
    return from_dict(FeatureSpec, override(to_dict(base), short), "features")


def check_selection(recipe: Recipe, pairs: PairSet) -> None:
    """Refuse a recipe whose best weights could not be selected."""
    if not METHODS[recipe.method].module.trainable:
        raise SoundspotError(f"the method {recipe.method} has nothing to train: use it as it is")
    select, splits = recipe.train.select, pairs.splits()
    if "val" not in splits:
        raise SoundspotError(f"{recipe.pairs} has no validation split: prepare it with --val 0.1")
    annotated = all(pair.boxes is not None for pair in pairs.select("val"))
    if select == "loss" and annotated:
        raise SoundspotError(f"the val split of {recipe.pairs} has boxes: use train.select=ciou")
    if select != "loss" and not annotated:
        raise SoundspotError(f"the val split of {recipe.pairs} has no boxes: use train.select=loss")
    if "duets" in select and "duets-val" not in splits:
        raise SoundspotError(f"train.select={select} needs duets, but {recipe.pairs} has none")


def with_earlier_meaning(values: dict[str, Any]) -> dict[str, Any]:
    """A stored recipe with what newer switches of its method meant when it was stored."""
    config = choose("method", values["method"], METHODS).config
    train = as_stored(TrainConfig, values["train"])
    return {**values, "model": as_stored(config, values["model"]), "train": train}


def check_same(path: Path, recipe: Recipe) -> None:
    """Refuse to resume a run of another recipe; only its length and loggers may differ."""
    stored = read_typed(path, Recipe, f"delete {path.parent} to start again", with_earlier_meaning)
    now = recipe.train
    train = replace(stored.train, epochs=now.epochs, steps=now.steps, tensorboard=now.tensorboard)
    if replace(stored, train=train) != recipe:
        raise SoundspotError(f"{path.parent} has a run of another recipe; choose another --out")
