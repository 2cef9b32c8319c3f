"""Checkpoints: safetensors for the weights, JSON beside it for everything else. No pickles.

`NAME.safetensors` holds the trained part of a method, `NAME.json` the card: which method with
which config on which encoders, how it was made and how it scored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor

from soundspot.common.config import as_stored, choose, from_dict, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_bytes, write_text
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods import METHODS
from soundspot.model.methods.method import Method

FORMAT = 1


@dataclass(frozen=True)
class Card:
    """What a checkpoint says of itself.

    Attributes:
        method: A key of METHODS.
        config: The method's config as plain values.
        features: The encoders and views it was trained on.
        trained: False for a network whose heads were never trained.
        epoch: After how many epochs it was saved.
        step: After how many optimiser steps; 0 where that was not recorded.
        metrics: What was measured on the validation split when it was saved.
        provenance: Command, commit, seed, data fingerprint.
        calibration: "threshold" is the peak cosine that best tells, on validation data, sounds
            with a visible source from others; empty if that was not measured.
        slim: Whether it holds only what localising needs, in half precision.
        format: Version of this file's layout.
    """

    method: str
    config: dict[str, Any]
    features: FeatureSpec
    trained: bool = True
    epoch: int = 0
    step: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    calibration: dict[str, float] = field(default_factory=dict)
    slim: bool = False
    format: int = FORMAT


def build_method(method: str, config: Mapping[str, Any]) -> Method:
    """A method with fresh weights from its name and plain config values."""
    spec = choose("method", method, METHODS)
    return spec.module(from_dict(spec.config, config, "model"))


def save(path: Path, model: Method, card: Card) -> None:
    """Write the weights to a .safetensors file and the card beside it, each in one step."""
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if card.slim:
        state = {
            name: tensor.half() if tensor.is_floating_point() else tensor
            for name, tensor in state.items()
            if not name.startswith(model.training_only)
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, serialise(state))
    write_text(path.with_suffix(".json"), json.dumps(to_dict(card), indent=1) + "\n")


def export(source: Path, target: Path, calibration: Mapping[str, float] | None = None) -> Card:
    """Write a checkpoint for use alone: half precision, without what only training needs.

    Args:
        source: A checkpoint or a run's folder.
        target: The .safetensors file.
        calibration: Goes into its card; default: what the source's card has.
    """
    if target.suffix != ".safetensors":
        raise SoundspotError(f"the name of a checkpoint ends in .safetensors, unlike {target}")
    if target.resolve() in (source.resolve(), (source / "best.safetensors").resolve()):
        raise SoundspotError(f"{target} is the checkpoint itself, which would be destroyed")
    model, card = load(source)
    slim = replace(card, slim=True, calibration=dict(calibration or card.calibration))
    save(target, model, slim)
    return slim


def load(path: Path) -> tuple[Method, Card]:
    """Read a checkpoint: a .safetensors file, or a run folder (its best.safetensors).

    Returns:
        The method in eval mode, in float32, and its card.
    """
    if path.is_dir():
        if not (path / "best.safetensors").is_file():
            raise SoundspotError(f"the folder {path} holds no training run (best.safetensors)")
        path = path / "best.safetensors"
    if not path.is_file():
        raise SoundspotError(f"no checkpoint at {path}")
    card = read_card(path)
    config_class = choose("method", card.method, METHODS).config
    card = replace(card, config=as_stored(config_class, card.config))
    model = build_method(card.method, card.config)
    try:
        state: dict[str, Tensor] = load_file(path)
        kept = {
            name: tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in state.items()
        }
        if card.slim:  # what only training needs stays as it was built
            own = model.state_dict().items()
            kept |= {name: tensor for name, tensor in own if name.startswith(model.training_only)}
        model.load_state_dict(kept)
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise SoundspotError(f"{path} is damaged or does not fit its card: {reason}") from error
    return model.eval(), card


def read_card(path: Path) -> Card:
    """The card beside a .safetensors file."""
    beside = path.with_suffix(".json")
    try:
        values = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} has no readable card {beside.name} beside it") from error
    if not isinstance(values, dict):
        raise SoundspotError(f"{beside} is no card: it holds {type(values).__name__}")
    if values.get("format") != FORMAT:
        raise SoundspotError(
            f"{beside} has format {values.get('format')}, this version reads format {FORMAT}"
        )
    return from_dict(Card, values, beside.name)
