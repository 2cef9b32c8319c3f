"""A recipe: one experiment as frozen dataclasses, read from YAML with key=value overrides."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from soundspot.config import build, choose, override, read_yaml
from soundspot.encoders import ENCODERS
from soundspot.errors import SoundspotError
from soundspot.features import FeatureSpec
from soundspot.methods import METHODS


@dataclass(frozen=True)
class TrainConfig:
    """How to optimise.

    Attributes:
        epochs: At most this many.
        batch: Pairs a step, over all processes together.
        lr_heads: lr_1 of Table S1, for the projection and prediction MLPs.
        lr: lr_2 of Table S1, for everything else.
        weight_decay: Of AdamW; a_l and b_l of the PCM have none.
        betas: Of AdamW.
        schedule: How the learning rates go over the epochs.
        seed: Of the weights, of the order, of views and of drawn sounds.
        select: The validation number that chooses the best epoch: higher is better, but for the
            loss. "ciou+duets" is the mean of both.
        patience: Stop after this many epochs without a better one; 0 never stops early.
        average: Weight of the past in a moving average of the weights that is validated and saved
            instead of the weights themselves; 0 is off.
        save_minutes: A resumable state is written at least this often.
        amp: bfloat16 autocast, on CUDA only.
        compile: Run the method through torch.compile.
    """

    epochs: int = 100
    batch: int = 256
    lr_heads: float = 2e-3
    lr: float = 5e-4
    weight_decay: float = 1e-4
    betas: tuple[float, ...] = (0.9, 0.999)
    schedule: Literal["constant", "cosine"] = "constant"
    seed: int = 0
    select: Literal["ciou", "auc", "duets", "ciou+duets", "loss"] = "ciou"
    patience: int = 10
    average: float = 0.0
    save_minutes: float = 5.0
    amp: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if self.epochs < 1 or self.batch < 2:
            raise ValueError(f"epochs={self.epochs}, batch={self.batch}: at least 1 and 2")
        if min(self.lr, self.lr_heads) <= 0 or len(self.betas) != 2:
            raise ValueError("the learning rates must be positive and betas two numbers")


@dataclass(frozen=True)
class Recipe:
    """An experiment.

    Attributes:
        pairs: Folder of the pair set to learn from.
        method: A key of METHODS.
        model: The method's switches; c_a is filled in from the audio encoder.
        features: Encoders and views.
        train: How to optimise.
    """

    pairs: Path
    method: str = "sspl"
    model: dict[str, Any] = field(default_factory=dict)
    features: FeatureSpec = field(default_factory=FeatureSpec)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        """Fill in what follows from the rest and check the model's switches at once."""
        filled = {"c_a": ENCODERS[self.features.audio].channels, **self.model}
        object.__setattr__(self, "model", filled)
        build(choose("method", self.method, METHODS).config, filled, "model")


def read_recipe(path: Path, assignments: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply overrides such as `train.epochs=3`."""
    return build(Recipe, override(read_yaml(path), assignments))


def check_same(stored: Recipe, asked: Recipe, run: Path) -> None:
    """Refuse to continue a run under another recipe; more epochs are the one allowed change."""
    from dataclasses import replace

    if replace(stored, train=replace(stored.train, epochs=asked.train.epochs)) != asked:
        raise SoundspotError(
            f"{run} holds a run of another recipe; give another --run folder, or delete it"
        )
