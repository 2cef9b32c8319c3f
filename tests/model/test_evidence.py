"""evidence.py: terms, shares and the map, by hand on a grid of 5 x 7."""

from dataclasses import replace

import pytest
import torch

from soundspot.model.evidence import (
    FACTS,
    TERMS,
    Known,
    SoundTable,
    Weights,
    combine,
    facts_of,
    how_sure,
    read_weights,
    shares_of,
    terms_of,
)


def known(**changes) -> Known:
    """One picture: the learned map's peak is upper left, the named one's lower right."""
    learned, named = torch.zeros(1, 5, 7), torch.zeros(1, 5, 7)
    learned[0, 0, 0], named[0, 4, 6] = 0.6, 0.4
    motion = torch.zeros(1, 5, 7)
    motion[0, 0, 6] = 1.0
    facts = {
        "noise": torch.tensor([0.2]),
        "threshold": 0.3,
        "sure": torch.tensor([[0.5, 0.1]]),
        "recorded": torch.tensor([True]),
    }
    return replace(Known(learned, named, motion, **facts), **changes)


def test_the_weights_that_ship_fit_the_terms():
    terms, facts = read_weights()
    assert (len(terms), len(facts)) == (len(TERMS), len(FACTS))
    assert min(terms) >= 0


def test_shares_weigh_names_answers_above_noise_and_ignorance():
    # (0.5 + 0.6 - 0.2) / 2 = 0.45 of the learned model, 0.1 of the name, 0.1 of neither.
    torch.testing.assert_close(shares_of(known()), torch.tensor([[0.45, 0.1, 0.1]]) / 0.65)
    quiet = known(noise=torch.tensor([0.9]))  # below noise counts as none
    torch.testing.assert_close(shares_of(quiet), torch.tensor([[0.25, 0.1, 0.1]]) / 0.45)


def test_names_of_white_noise_do_not_count():
    table = SoundTable(learned=(0, 1), named=(2, 3))
    scores, noise = torch.tensor([[0.3, 0.9, 0.2, 0.8]]), torch.tensor([0.0, 0.5, 0.0, 0.3])
    torch.testing.assert_close(how_sure(scores, noise, table), torch.tensor([[0.3, 0.2]]))
    assert how_sure(scores, noise, SoundTable((), ())).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("term", "peak"), [(0, (0, 0)), (1, (0, 0)), (2, (4, 6)), (3, (0, 6)), (4, (2, 3))]
)
def test_each_term_has_its_own_peak(term: int, peak: tuple[int, int]):
    weights = Weights(tuple(float(k == term) for k in range(5)), (0.0,) * 6)
    (map,) = combine(known(), weights)
    assert divmod(int(map.argmax()), 7) == peak
    assert map.max() == pytest.approx(0.5) and map.min() == 0  # odds of 1


def test_place_counts_least_where_a_thing_is_recognized():
    sure = known(sure=torch.tensor([[0.9, 0.0]]))
    assert terms_of(sure)[0, 4].max() < 0.1 * terms_of(sure)[0, 0].max()
    nothing = known(sure=torch.zeros(1, 2), noise=torch.tensor([0.6]))
    assert terms_of(nothing)[0, 4].max() == pytest.approx(1.0)


def test_facts_by_hand():
    learned, _, neither = (torch.tensor([0.45, 0.1, 0.1]) / 0.65).tolist()
    expected = [1, 0.4 / 0.3, learned * 2, (1 - learned) * 0.4, neither, 1]
    torch.testing.assert_close(facts_of(known()), torch.tensor([expected]))
    weights = Weights((1.0,) * 5, (0, 0, 0, 0, 0, 2.0))
    assert combine(known(), weights).max() == pytest.approx(0.8808, abs=1e-4)
    unseen = known(recorded=torch.tensor([False]))
    assert combine(unseen, weights).max() == pytest.approx(0.5)
