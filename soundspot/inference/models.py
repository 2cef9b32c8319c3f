"""The models by name, and how one is loaded: what ships, checkpoints, names, untrained ones."""

import logging
from dataclasses import replace
from pathlib import Path

import torch

from soundspot.common.config import nearest, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.table import ENCODERS
from soundspot.encoders.yamnet import YAMNet
from soundspot.features.spec import FeatureSpec, load_encoders
from soundspot.inference.localizer import Localizer
from soundspot.inference.router import (
    NAMES,
    Router,
    check_names_sounds,
    is_bridge,
    open_bridge,
    split_name,
)
from soundspot.model import checkpoint
from soundspot.model.methods.method import Method
from soundspot.model.methods.names import build_names
from soundspot.model.methods.sspl import SSPLConfig
from soundspot.model.routing import route_table
from soundspot.parallel.devices import AUTO, choose_device

LEARNED_MODEL = "soundspot-v2"  # ships in soundspot/pretrained/
DEFAULT_MODEL = f"{LEARNED_MODEL}+{NAMES}"  # the sound decides which of the two makes the map
MODELS = Path(__file__).parents[1] / "pretrained"
UNTRAINED = {
    "untrained-sspl": SSPLConfig(c_a=ENCODERS["yamnet"].channels),
    "untrained-sspl-pcm": SSPLConfig(c_a=ENCODERS["yamnet"].channels, pcm=True),
}
NAMES_THRESHOLD = 0.28  # peak of a visible source on anysound dev, by benchmarks/route_sounds.py

log = logging.getLogger(__name__)


def load(name_or_path: str | Path | None = None, device: str = AUTO) -> Localizer:
    """Load a model that is ready to localise; its encoders are downloaded once and cached.

    Args:
        name_or_path: A name (see `model_names`), a .safetensors checkpoint, the folder of a
            training run, or your own bridge.yaml for the model "names". MODEL+names lets the
            sound decide which of the two makes the map. Default: the best model that ships with
            soundspot, with names.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda", "mps", or as torch names it.

    Example:
        >>> model = soundspot.load()
        >>> model.name in soundspot.model_names()
        True
    """
    place = choose_device(device)
    chosen = DEFAULT_MODEL if name_or_path is None else str(name_or_path)
    learned, bridge = split_name(chosen)
    if bridge is not None:
        return _with_bridge(load(learned, device), chosen, bridge)
    method, card = read_model(chosen)
    if not card.trained:
        warning = "WARNING: %s HAS UNTRAINED HEADS: ITS MAPS MEAN NOTHING. It only shows that "
        log.warning(warning + "everything runs.", chosen)
    encoders = load_encoders(card.features, place)
    named = card.features.pretrained and isinstance(encoders.audio, YAMNet)
    return Localizer(
        name=chosen,
        method=method.to(place).eval(),
        visual=encoders.visual,
        audio=encoders.audio,
        card=card,
        class_names=tuple(weights.class_names("yamnet-audioset")) if named else (),
        device=place,
    )


def _with_bridge(learned: Localizer, name: str, bridge: str) -> Localizer:
    """A learned model whose sounds may choose the bridge, which hears with the model's ears."""
    check_names_sounds(learned.card, name)
    table = route_table(open_bridge(bridge), learned.class_names)

    def load_bridge() -> Localizer:
        return replace(load(bridge, str(learned.device)), audio=learned.audio)

    return replace(learned, name=name, router=Router(table, load_bridge))


def model_names() -> list[str]:
    """The names that `load` accepts: the default, shipped models, names, untrained ones."""
    return [DEFAULT_MODEL, *_shipped(), NAMES, *UNTRAINED]


def _shipped() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.safetensors"))


def read_model(chosen: str) -> tuple[Method, checkpoint.Card]:
    """The trained part of a model, by any name that `load` accepts, and its card."""
    if chosen in UNTRAINED:
        card = checkpoint.Card("sspl", to_dict(UNTRAINED[chosen]), FeatureSpec(), trained=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return checkpoint.build_method(card.method, card.config), card
    if is_bridge(chosen):
        return _read_names(chosen)
    if split_name(chosen)[1] is not None:
        raise SoundspotError(f"{chosen} is two models: name one of them here")
    shipped = chosen in _shipped()
    if not shipped and not Path(chosen).exists():
        raise SoundspotError(
            f"no model {chosen!r}: {nearest(chosen, model_names())}, "
            "or the path of a checkpoint or training run"
        )
    method, card = checkpoint.load(MODELS / f"{chosen}.safetensors" if shipped else Path(chosen))
    features = card.features
    for takes, gives, encoder in (
        (card.config.get("c_v"), features.c_v, features.visual),
        (card.config.get("c_a"), features.c_a, features.audio),
    ):
        if takes not in (None, gives):
            raise SoundspotError(
                f"{chosen} does not fit its encoder: it takes features of {takes} channels, but "
                f"{encoder} gives {gives}"
            )
    return method, card


def _read_names(bridge: str) -> tuple[Method, checkpoint.Card]:
    features = FeatureSpec(visual="mobilenetv2", audio="yamnet")
    seen, heard = (ENCODERS[name].weights for name in (features.visual, features.audio))
    things = open_bridge(bridge).things
    model = build_names(weights.load_tensors(seen), weights.load_tensors(heard), things)
    calibration = {"threshold": NAMES_THRESHOLD}
    return model, checkpoint.Card("names", to_dict(model.config), features, calibration=calibration)
