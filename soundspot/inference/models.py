"""The models by name, and how one is loaded: shipped ones, checkpoints, the label map."""

import logging
from dataclasses import replace
from pathlib import Path

import torch

from soundspot.common.config import nearest, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders import mobilenetv2, weights, yamnet
from soundspot.encoders.table import ENCODERS
from soundspot.features.spec import FeatureSpec
from soundspot.inference.localizer import Localizer, Part
from soundspot.model import checkpoint
from soundspot.model.evidence import sound_table
from soundspot.model.label_map import LABEL_MAP, LabelMap, read_label_map
from soundspot.model.methods.method import Method
from soundspot.model.methods.names import build_names
from soundspot.model.methods.sspl import SSPLConfig
from soundspot.parallel.devices import AUTO, choose_device

NAMES = "names"  # the label map, built from the weights of its encoders
NOTHING = "none"  # in place of a label map
DEFAULT_MODEL = "soundspot"
WITH_NAMES = (DEFAULT_MODEL, "soundspot-fast")  # the sound decides which part makes the map
RETIRED = {
    "soundspot-v1": DEFAULT_MODEL,
    "soundspot-v2": DEFAULT_MODEL,
    "soundspot-fast-v1": "soundspot-fast",
    "sspl-v1": "sspl",
    "sspl-v2": "sspl",
    "sspl-v3": "sspl",
}
MODELS = Path(__file__).parents[1] / "pretrained"
UNTRAINED = {
    "untrained-sspl": SSPLConfig(c_a=ENCODERS["yamnet"].channels),
    "untrained-sspl-pcm": SSPLConfig(c_a=ENCODERS["yamnet"].channels, pcm=True),
}
NAMES_THRESHOLD = 0.28  # best for F1 on anysound dev, of the label map alone

log = logging.getLogger(__name__)


def load(name_or_path: str | Path | None = None, device: str = AUTO) -> Localizer:
    """Load a model that is ready to localize; its encoders are downloaded once and cached.

    Args:
        name_or_path: A name (see `model_names`), a .safetensors checkpoint, the folder of a
            training run, or your own label map (.yaml) for the model "names". MODEL+names lets the
            sound decide which of the two makes the map, as it does in soundspot and
            soundspot-fast; with +none, what they have learned makes the map alone. Default: the
            best model.
        device: "auto" (a CUDA GPU if there is one), "cpu", "cuda", "mps", or as torch names it.

    Example:
        >>> model = soundspot.load()
        >>> model.name in soundspot.model_names()
        True
    """
    model = open_model(name_or_path, device)
    _ = model.audio, model.learned.encoders  # fetched now, so that a missing file is noticed here
    return model


def open_model(name_or_path: str | Path | None = None, device: str = AUTO) -> Localizer:
    """`load` without the encoders, which are loaded only when they are first needed."""
    place = choose_device(device)
    chosen = DEFAULT_MODEL if name_or_path is None else str(name_or_path)
    learned_name, labels_name = split_name(chosen)
    learned = _read_part(learned_name, place)
    if not learned.card.trained:
        warning = "WARNING: %s HAS UNTRAINED HEADS: ITS MAPS MEAN NOTHING. It only shows that "
        log.warning(warning + "everything runs.", chosen)
    features = learned.card.features
    names_sounds = features.audio == "yamnet" and features.pretrained is not False
    sounds = tuple(yamnet.class_names()) if names_sounds else ()
    model = Localizer(chosen, learned, sounds)
    if labels_name is None:
        return model
    if not names_sounds:
        raise SoundspotError(f"{chosen}: a label map needs a model that hears by YAMNet")
    table = sound_table(open_label_map(labels_name))
    named = _read_part(labels_name, place)
    encoders = (*features.visual_encoders, *named.card.features.visual_encoders)
    if len({encoder.weights or encoder for encoder in encoders}) == 1:
        # The same encoder at another size: one look at the picture serves both.
        seen = replace(named.card.features, visual=features.visual)
        named = replace(named, card=replace(named.card, features=seen))
    return replace(model, named=named, table=table)


def _read_part(name: str, place: torch.device) -> Part:
    method, card = read_model(name)
    return Part(method.to(place).eval(), card, place)


def model_names() -> list[str]:
    """The names that `load` accepts: shipped models, and names."""
    return [*_shipped(), NAMES]


def _shipped() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.safetensors"))


def is_label_map(name: str) -> bool:
    """Whether a model is a label map: the one that ships, or your own file."""
    return name == NAMES or Path(name).suffix in (".yaml", ".yml")


def split_name(chosen: str) -> tuple[str, str | None]:
    """The parts of MODEL+names or MODEL+mine.yaml; of other models, only ours have names."""
    learned, *labels = _parts(chosen)
    if not labels:
        return chosen, NAMES if chosen in WITH_NAMES else None
    return learned, None if labels == [NOTHING] else labels[0]


def _parts(chosen: str) -> list[str]:
    """The parts of a name as it was given: one or two."""
    learned, _, labels = chosen.rpartition("+")
    two = learned and (labels == NOTHING or is_label_map(labels))
    return [learned, labels] if two else [chosen]


def absolute_name(model: str | None) -> str | None:
    """The name of a model with absolute paths, so that it is found from any folder."""
    known = (*model_names(), *RETIRED, *UNTRAINED, NOTHING)
    parts = [] if model is None else _parts(model)
    return "+".join(p if p in known else str(Path(p).absolute()) for p in parts) or None


def open_label_map(name: str) -> LabelMap:
    """The label map of that name; only the names of sounds are needed, no visual weights."""
    names = yamnet.class_names(), mobilenetv2.class_names()
    own = read_label_map(LABEL_MAP if name == NAMES else Path(name), *names)
    if own.learned:
        return own
    shipped = read_label_map(LABEL_MAP, *names)  # what models have learned is the same
    return own._replace(learned=shipped.learned, related=shipped.related, broad=shipped.broad)


def read_model(chosen: str) -> tuple[Method, checkpoint.Card]:
    """The trained part of a model, by any name that `load` accepts, and its card."""
    if chosen in UNTRAINED:
        card = checkpoint.Card("sspl", to_dict(UNTRAINED[chosen]), FeatureSpec(), trained=False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return checkpoint.build_method(card.method, card.config), card
    if is_label_map(chosen):
        return _read_names(chosen)
    if chosen in RETIRED:
        raise SoundspotError(f"{chosen} is no more: use {RETIRED[chosen]}", "unknown-model")
    shipped = chosen in _shipped()
    if not shipped and not Path(chosen).exists():
        raise SoundspotError(
            f"no model {chosen!r}: {nearest(chosen, model_names())}, "
            "or the path of a checkpoint or training run",
            "unknown-model",
        )
    method, card = checkpoint.load(MODELS / f"{chosen}.safetensors" if shipped else Path(chosen))
    features = card.features
    for takes, gives, encoder in (
        (card.config.get("c_v"), features.c_v, features.visual),
        (card.config.get("c_a"), features.c_a, features.audio),
    ):
        if takes not in (None, gives):
            raise SoundspotError(f"{chosen} takes {takes} channels, but {encoder} gives {gives}")
    return method, card


def _read_names(labels: str) -> tuple[Method, checkpoint.Card]:
    features = FeatureSpec(visual="mobilenetv2", audio="yamnet")
    seen, heard = (ENCODERS[name].weights or name for name in (features.visual, features.audio))
    things = open_label_map(labels).things
    model = build_names(weights.load_tensors(seen), weights.load_tensors(heard), things)
    calibration = {"threshold": NAMES_THRESHOLD}
    return model, checkpoint.Card("names", to_dict(model.config), features, calibration=calibration)
