"""names.py: by hand on a tiny label map, as a checkpoint, and with the real classifiers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import soundspot
from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.features.spec import FeatureSpec
from soundspot.model import checkpoint
from soundspot.model.label_map import Thing
from soundspot.model.methods.names import Names, build_names

THINGS = (Thing("left", (0,), (0,)), Thing("right", (1, 2), (1,)), Thing("both", (2,), (0, 1)))


def tiny() -> Names:
    """Sound s is loud on audio channel s, class k on visual channel k."""
    audio = {"classifier.weight": 8 * torch.eye(3), "classifier.bias": torch.full((3,), -4.0)}
    visual = {"classifier.weight": 5 * torch.eye(3, 5), "classifier.bias": torch.zeros(3)}
    return build_names(visual, audio, THINGS)


def scene() -> torch.Tensor:
    """Class 0 fills the left of a 2 x 7 grid, class 1 the right, the middle shows neither."""
    f_v = torch.zeros(1, 5, 2, 7)
    f_v[:, 0, :, :3] = 1
    f_v[:, 1, :, 4:] = 1
    f_v[:, 3, :, 3] = 1
    return f_v


def heard(sound: int) -> torch.Tensor:
    f_a = torch.zeros(1, 3, 3)
    f_a[:, :, sound] = 1
    return f_a


@pytest.mark.parametrize(("sound", "columns"), [(0, {0, 1, 2}), (1, {4, 5, 6})])
def test_the_map_is_highest_where_the_sounding_thing_is(sound: int, columns: set[int]) -> None:
    (s,) = tiny().maps(scene(), heard(sound))
    assert s.shape == (2, 7)
    assert set((s > 0.99 * s.max()).nonzero()[:, 1].tolist()) == columns
    assert s.abs().max() <= 1


def test_the_map_is_a_root_of_the_probability_of_what_sounds() -> None:
    """Like locations weigh e^(1 / 0.3), others 1; the logits, 5 times the features, are halved."""
    model = tiny()
    like = np.exp(1 / 0.3)
    total = 6 * like + 8
    near, far, middle = 6 * like / total, 6 / total, 6 / (2 * like + 12)
    left, right = np.exp([2.5 * near, 2.5 * far]) / (np.exp(2.5 * near) + np.exp(2.5 * far) + 1)
    neither = np.exp(2.5 * middle) / (2 * np.exp(2.5 * middle) + 1)
    in_row = np.array([left] * 3 + [neither] + [right] * 3)
    (choice,) = model.choose(scene(), heard(0)).numpy()
    mixed = choice @ [in_row, in_row[::-1], in_row + in_row[::-1]]
    (s,) = model.maps(scene(), heard(0))
    np.testing.assert_allclose(s**3, [mixed, mixed], rtol=1e-5)


def test_the_contour_leaves_out_what_is_more_probably_something_else() -> None:
    """Half of the frame shows much of what sounds, but more of another of 50 classes."""
    visual = {"classifier.weight": 8 * torch.eye(50), "classifier.bias": torch.zeros(50)}
    audio = {"classifier.weight": torch.eye(3), "classifier.bias": torch.zeros(3)}
    model = build_names(visual, audio, (Thing("left", (0,), (0,)),))
    model.config = replace(model.config, self_attention=0.01)  # every location for itself
    f_v = torch.zeros(1, 50, 2, 7)
    f_v[:, 0, :, :3] = 1
    f_v[:, 0, :, 3:6], f_v[:, 1, :, 3:6] = 0.8, 1.2
    f_v[:, 2, :, 6] = 1
    (s,) = model.maps(f_v, heard(0))
    assert (s >= (s.min() + s.max()) / 2).nonzero()[:, 1].unique().tolist() == [0, 1, 2]


def test_the_choice_weighs_scores_and_probabilities() -> None:
    (choice,) = tiny().choose(scene(), heard(2))
    loud, faint = torch.sigmoid(torch.tensor([4.0, -4.0])).tolist()
    one = np.exp(5) / (np.exp(5) + 2)
    both = (np.exp(5) + 1) / (np.exp(5) + 2)
    expected = np.array([faint * one, loud * one, loud * both / 2**0.5])
    np.testing.assert_allclose(choice, expected / expected.sum(), rtol=1e-4)


def test_faint_sounds_still_differ() -> None:
    """Scores of sigmoid(-8) and sigmoid(-10); both things are equally well seen."""
    f_a = torch.tensor([-0.5, -0.75, -0.75]).expand(1, 2, 3)
    left, right, _ = tiny().choose(scene(), f_a)[0].tolist()
    expected = (1 + np.exp(10)) / (1 + np.exp(8))
    assert left / right == pytest.approx(expected, rel=1e-3)


def test_what_is_not_in_the_picture_is_chosen_less() -> None:
    without_right = scene()
    without_right[:, 1] = 0
    before, after = (tiny().choose(f_v, heard(2))[0, 1] for f_v in (scene(), without_right))
    assert after < 0.6 * before


def test_a_checkpoint_holds_all_that_it_needs(tmp_path: Path) -> None:
    model = tiny()
    path = tmp_path / "mine.safetensors"
    checkpoint.save(path, model, checkpoint.Card("names", to_dict(model.config), FeatureSpec()))
    loaded, _ = checkpoint.load(path)
    torch.testing.assert_close(loaded.maps(scene(), heard(1)), model.maps(scene(), heard(1)))


@pytest.mark.weights
def test_a_label_map_of_ones_own_is_a_model_and_its_mistakes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("dog: Bark -> beagle")
    assert soundspot.load(path).card.config["things"] == 1
    path.write_text("dog: Bark -> beagl")
    with pytest.raises(SoundspotError):
        soundspot.load(path)
