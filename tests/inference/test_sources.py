import torch

from soundspot.inference.sources import Candidate, share_out
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
