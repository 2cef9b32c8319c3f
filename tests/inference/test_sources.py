import numpy as np
import pytest
import torch

import soundspot
from soundspot.inference.localizer import Pictures
from soundspot.inference.sources import Again, Candidate, answer_alone, candidates, share_out
from soundspot.model.sound_classes import logits, read_sound_classes


def sound(name: str, score: float) -> Candidate:
    return Candidate(name, 0.5, score, torch.zeros(1, 1, 3))


DOG, TRAIN, CAT = sound("Dog", 3.0), sound("Train", 5.0), sound("Cat", 2.0)


def names(found):
    return [[one.name for one in some] for some in found]


def test_every_event_has_a_sound_before_one_has_two():
    assert names(share_out([[TRAIN, CAT], [DOG]], 2)) == [["Train"], ["Dog"]]
    assert names(share_out([[TRAIN, CAT], [DOG]], 3)) == [["Train", "Cat"], ["Dog"]]
    assert names(share_out([[TRAIN, DOG, CAT]], 2)) == [["Train", "Dog"]]


def test_a_train_that_goes_on_while_a_dog_barks_counts_once():
    assert names(share_out([[TRAIN], [TRAIN, DOG]], 2)) == [["Train"], ["Dog"]]
    assert names(share_out([[TRAIN], []], 2)) == [["Train"], []]


def test_a_short_sound_is_heard_in_its_own_patch():
    weight, bias = torch.eye(2), torch.tensor([0.0, 1.0])
    f_a = torch.tensor([[[9.0, 0.0], [0.0, 0.0], [0.0, 0.0]]])
    short, silent = logits(f_a, weight, bias)[0].tolist()
    assert 8.9 < short < 9.1 and 1.3 < silent < 1.4


def test_the_classes_that_ship_hear_their_own_typical_sounds():
    classes = read_sound_classes()
    heard = logits(classes.typical[:, None], classes.weight, classes.bias)
    assert heard.argmax(dim=1).tolist() == list(range(len(classes.names)))
    assert list(classes.names) == sorted(classes.names)


@pytest.mark.weights
def test_a_sound_by_name_is_played_as_noise_that_is_heard_as_nothing_else():
    model = soundspot.load()
    time = np.arange(48_000) / 16_000
    beeps = np.sin(12_566 * time) * (time % 0.5 < 0.25)
    f_a = model.hear([beeps.astype(np.float32)])
    frame = np.random.default_rng(0).integers(0, 256, (53, 71, 3), dtype=np.uint8)
    scene = Again(Pictures([frame]))
    found = candidates(model, scene, f_a)
    classes = read_sound_classes()
    named = found[0]
    assert not {one.name.lower() for one in found} & {*classes.names}, "no class sounds like this"
    learned = candidates(model, scene, classes.typical[None, [classes.names.index("dog")]])[0]
    scores = model.name_scores(named.f_a)[0]
    assert model.class_names[int(scores.argmax())] == named.name
    assert scores.max() == pytest.approx(named.heard, abs=0.01)
    assert np.sort(scores)[-2] < 0.01
    first, second = answer_alone(model, scene, [named, learned])
    assert [one.labels[0][0] for one in (first, second)] == [named.name, learned.name]
    assert first.shares.learned < 0.1 < first.shares.named
