"""Checkpoints: safetensors for the weights, with a card of JSON inside. No pickles.

`NAME.safetensors` holds the trained part of a method and, in its metadata, the card: which method
with which config on which encoders, how it was made and how it scored. `NAME.json` beside it is a
copy for people or, for old checkpoints that have no card inside, the card itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialize

from soundspot.common.config import as_stored, choose, from_dict, parse_json, read_bytes, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.common.files import write_bytes, write_text
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods import METHODS
from soundspot.model.methods.method import Method

FORMAT = 1
RENAMED = {"second_look": "zoom"}  # keys of older cards
CARD = "soundspot"  # the card's key in the metadata
LARGEST = 2**28  # parameters; a config that asks for more is a mistake or damaged


@dataclass(frozen=True)
class Card:
    """What a checkpoint says of itself.

    Attributes:
        method: A key of METHODS.
        config: The method's config as plain values.
        features: The encoders and views it was trained on.
        trained: False for a network whose heads were never trained.
        epoch: After how many epochs it was saved.
        step: After how many optimizer steps; 0 where that was not recorded.
        metrics: What was measured on the validation split when it was saved.
        provenance: Command, commit, seed, data fingerprint.
        calibration: "threshold" is the peak that best tells, on validation data, sounds
            with a visible source from others; empty if that was not measured.
        zoom: Of the frame: where less than this share of a map is hot, the model zooms in on its
            surroundings (`inference.maps.zoom`); 0 turns this off.
        version: Of a model that ships: it rises when its name gets other weights.
        date: Of its training, as YYYY-MM-DD.
        slim: Whether it holds only what localizing needs, in half precision.
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
    zoom: float = 0.0
    version: str = ""
    date: str = ""
    slim: bool = False
    format: int = FORMAT


def build_method(method: str, config: Mapping[str, Any]) -> Method:
    """A method with fresh weights from its name and plain config values."""
    _outline(method, config)
    return _build(method, config)


def _build(method: str, config: Mapping[str, Any]) -> Method:
    spec = choose("method", method, METHODS)
    return spec.module(from_dict(spec.config, config, "model"))


def _outline(method: str, config: Mapping[str, Any]) -> Method:
    """A method whose tensors have shapes but no memory."""
    try:
        with torch.device("meta"):
            outline = _build(method, config)
    except RuntimeError as error:  # sizes that overflow
        raise SoundspotError(f"a {method} model of these sizes cannot be built") from error
    count = sum(tensor.numel() for tensor in outline.state_dict().values())
    if count > LARGEST:
        raise SoundspotError(f"a {method} of these sizes has {count:,} parameters: too many")
    return outline


def save(path: Path, model: Method, card: Card) -> None:
    """Write the weights and their card in one step, then the copy of the card."""
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if card.slim:
        state = {
            name: tensor.half() if tensor.is_floating_point() else tensor
            for name, tensor in state.items()
            if not name.startswith(model.training_only)
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_dict(card), indent=1) + "\n"
    write_bytes(path, serialize(state, {CARD: text}))
    write_text(path.with_suffix(".json"), text)


def export(
    source: Path,
    target: Path,
    calibration: Mapping[str, float] | None = None,
    zoom: float | None = None,
) -> Card:
    """Write a checkpoint for use alone: half precision, without what only training needs.

    Args:
        source: A checkpoint or a run's folder.
        target: The .safetensors file.
        calibration: Goes into its card; default: what the source's card has.
        zoom: Likewise.
    """
    if target.suffix != ".safetensors":
        raise SoundspotError(f"the name of a checkpoint must end in .safetensors, got {target}")
    if target.resolve() in (source.resolve(), (source / "best.safetensors").resolve()):
        raise SoundspotError(f"{target} is the checkpoint itself, which would be destroyed")
    model, card = load(source)
    if zoom is not None:
        if not 0 <= zoom <= 1:
            raise SoundspotError(f"zoom={zoom} must be a share from 0 to 1")
        card = replace(card, zoom=zoom)
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
    try:
        _check_shapes(path, card)
        model = _build(card.method, card.config)
        state = load_file(path)  # half precision is widened where it is loaded
        if not all(tensor.isfinite().all() for tensor in state.values()):
            raise SoundspotError("it holds weights that are not finite numbers")
        if card.slim:  # what only training needs stays as it was built
            own = model.state_dict().items()
            state |= {name: tensor for name, tensor in own if name.startswith(model.training_only)}
        model.load_state_dict(state)
    except (OSError, SafetensorError, RuntimeError, SoundspotError) as error:
        reason = str(error).splitlines()[0]
        raise SoundspotError(f"{path} is damaged or does not fit its card ({reason})") from error
    return model.eval(), card


def _check_shapes(path: Path, card: Card) -> None:
    """Compare the card's config with the file's header, before anything is allocated."""
    outline = _outline(card.method, card.config)
    left_out = outline.training_only if card.slim else ()
    expected = {
        name: tuple(tensor.shape)
        for name, tensor in outline.state_dict().items()
        if not name.startswith(left_out)
    }
    with safe_open(path, "pt") as file:
        given = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    for name in sorted(expected.keys() | given.keys()):
        asked, got = expected.get(name, "absent"), given.get(name, "absent")
        if asked != got:
            raise SoundspotError(f"{name} is {got}, the card says {asked}")


def read_card(path: Path) -> Card:
    """The card of a .safetensors file."""
    beside = path.with_suffix(".json")
    try:
        with safe_open(path, "pt") as file:
            inside: str | None = (file.metadata() or {}).get(CARD)
    except (OSError, SafetensorError) as error:
        raise SoundspotError(f"{path} is not a readable checkpoint ({error})") from error
    place = path if inside is not None else beside
    try:
        values = parse_json(read_bytes(beside) if inside is None else inside)
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} has no readable card {beside.name} beside it") from error
    if not isinstance(values, dict):
        raise SoundspotError(f"{place} has no card: it holds {type(values).__name__}")
    if values.get("format") != FORMAT:
        raise SoundspotError(f"{place} has format {values.get('format')!r:.80}, not {FORMAT}")
    return from_dict(Card, {RENAMED.get(key, key): v for key, v in values.items()}, place.name)
