import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_batch import small_batch

import reference
from soundspot.model import losses
from soundspot.model.attention import self_attended, similarity
from soundspot.model.heads import pooled_audio
from soundspot.model.methods.sspl import SSPL as PaperSSPL
from soundspot.model.methods.sspl import SSPLConfig as PaperConfig
from soundspot.model.methods.sspl_plus import SSPLPlus as SSPL
from soundspot.model.methods.sspl_plus import SSPLPlusConfig as SSPLConfig

SMALL = SSPLConfig(c_v=7, c_a=5, projection=7, hidden=13, cycles=2)


def _variants():
    yield SMALL
    yield dataclasses.replace(SMALL, pcm=True)
    yield dataclasses.replace(SMALL, pcm=True, variant="paper")
    yield dataclasses.replace(SMALL, visual_conv=True, alignment=0.5)
    yield dataclasses.replace(SMALL, pcm=True, alignment=0.5, visual_conv=True)
    yield dataclasses.replace(SMALL, alignment=0.5, alignment_objective="clusters", clusters=7)
    yield dataclasses.replace(SMALL, objective="none", alignment=0.5, visual_conv=True)
    for objective in ("byol", "barlow", "wmse"):
        yield dataclasses.replace(SMALL, objective=objective)
    for fusion in ("concatenation", "product", "sum"):
        yield dataclasses.replace(SMALL, fusion=fusion)


def test_loss_equals_the_paper_from_features_to_eq_7():
    """Eqs. 3 to 7 through the naive reference, heads taken as given."""
    model = SSPL(SMALL)
    data = small_batch(11, (7, 7))
    f_a = model.branch.g(data.f_a).detach().double().numpy()
    zs = []
    for f_v in (data.f_v1, data.f_v2):
        _, f_av = reference.attended(f_a, f_v.double().numpy())
        zs.append(model.branch.projector(torch.from_numpy(f_av).float()))
    ps = [model.predictor(z) for z in zs]
    expected = reference.sspl_loss(*[t.detach().double().numpy() for t in (*ps, *zs)])
    assert model(data).loss.item() == pytest.approx(expected, abs=1e-5)


def test_without_switches_it_is_the_papers_sspl():
    for pcm in (False, True):
        torch.manual_seed(0)
        paper = PaperSSPL(PaperConfig(c_v=7, c_a=5, projection=7, hidden=13, cycles=2, pcm=pcm))
        torch.manual_seed(0)
        plus, data = SSPL(dataclasses.replace(SMALL, pcm=pcm)), small_batch(11, (7, 7))
        for ours, theirs in zip(plus.state_dict().items(), paper.state_dict().items(), strict=True):
            assert ours[0] == theirs[0] and torch.equal(ours[1], theirs[1])
        assert torch.equal(plus(data).loss, paper(data).loss)
        maps = [m.eval().maps_by_cycle(data.f_v1, data.f_a) for m in (plus, paper)]
        assert torch.equal(torch.stack(maps[0]), torch.stack(maps[1]))


@pytest.mark.parametrize("view", [0, 1])
def test_the_stop_gradient_holds_the_predicted_view(view):
    """A gradient reaches z1, and z2, through the predictor alone; without the stop as a target."""
    model, z = PaperSSPL(PaperConfig(c_v=7, c_a=5, projection=7)), list(torch.randn(2, 11, 7))
    this, other = z[view].requires_grad_(), z[1 - view]
    (stopped,) = torch.autograd.grad(model.predict_views(*z), this)
    alone = losses.negative_cosine(model.predictor(this), other) / 2
    torch.testing.assert_close(stopped, torch.autograd.grad(alone, this)[0])
    model.config = dataclasses.replace(model.config, stop_gradient=False)
    assert not torch.allclose(stopped, torch.autograd.grad(model.predict_views(*z), this)[0])


@pytest.mark.parametrize("config", list(_variants()))
def test_gradients_reach_every_trained_parameter(config):
    model = SSPL(config)
    model(small_batch(11, (7, 7))).loss.backward()
    silent = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.abs().sum() > 0)
    ]
    assert silent == []


def test_without_an_objective_the_cross_modal_term_learns_from_one_view():
    config = dataclasses.replace(SMALL, objective="none", alignment=0.5)
    torch.manual_seed(1)
    model, data = SSPL(config), small_batch(11, (7, 7))
    assert model.heads == []
    aligned = SSPL(dataclasses.replace(config, objective="simsiam"))
    aligned.branch.g.load_state_dict(model.branch.g.state_dict())
    same = data._replace(f_v2=data.f_v1)
    torch.testing.assert_close(model(data).loss, aligned(same).report["alignment"])


def test_maps_may_leave_out_what_all_sounds_have_in_common():
    model, data = SSPL(dataclasses.replace(SMALL, map_centering=0.5)), small_batch(11, (7, 7))
    for _ in range(400):  # the weights stay, so the moving average reaches the mean
        model(data)
    unit = F.normalize(model.branch.g(data.f_a), dim=1)
    expected = similarity(unit - unit.mean(dim=0) / 2, data.f_v1)
    torch.testing.assert_close(model.eval().maps(data.f_v1, data.f_a), expected)
    plain = SSPL(SMALL)
    plain.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(plain.maps(data.f_v1, data.f_a), similarity(unit, data.f_v1))
    before = model.common_sound.clone()
    model(data._replace(f_a=2 * data.f_a))  # not in training
    assert torch.equal(model.common_sound, before)


def test_the_map_is_the_cosine_of_the_transformed_sound_with_what_the_pcm_gives():
    model, data = SSPL(dataclasses.replace(SMALL, pcm=True)).eval(), small_batch(1, (7, 7))
    f_v = model.branch.pcm(data.f_v1, pooled_audio(data.f_a)).detach().double().numpy()
    expected = reference.similarity(model.branch.g(data.f_a).detach().double().numpy(), f_v)
    np.testing.assert_allclose(model.maps(data.f_v1, data.f_a).detach(), expected, atol=1e-5)


def test_maps_of_every_cycle_end_in_the_map_and_may_go_beyond_training():
    model = SSPL(dataclasses.replace(SMALL, pcm=True, visual_conv=True)).eval()
    data = small_batch(2, (7, 7))
    steps = model.maps_by_cycle(data.f_v1, data.f_a, cycles=4)
    assert len(steps) == 4
    torch.testing.assert_close(steps[1], model.maps(data.f_v1, data.f_a))
    torch.testing.assert_close(steps[3], model.maps(data.f_v1, data.f_a, cycles=4))


def test_pcm_hears_the_mean_patch_on_the_unit_sphere():
    f_a = torch.tensor([[[3.0, 0.0], [3.0, 8.0]]])
    torch.testing.assert_close(pooled_audio(f_a), torch.tensor([[0.6, 0.8]]))
    torch.testing.assert_close(pooled_audio(f_a, unit=False), torch.tensor([[3.0, 4.0]]))


def test_each_view_keeps_its_own_batch_statistics():
    """The loss is that of the views run apart; views of other scales in one batch would differ."""
    model = SSPL(SMALL)
    data = small_batch(11, (7, 7))
    data = data._replace(f_v2=data.f_v2 * 100 + 50)
    z1 = model.branch(data.f_v1, data.f_a).z
    z2 = model.branch(data.f_v2, data.f_a).z
    torch.testing.assert_close(model(data).loss, model.predict_views(z1, z2))


def test_byol_target_follows_slowly_and_learns_nothing_itself():
    model = SSPL(dataclasses.replace(SMALL, objective="byol", momentum=0.9))
    with torch.no_grad():
        for p in model.branch.parameters():
            p.add_(1.0)
    before = [p.clone() for p in model.target.parameters()]
    model(small_batch(11, (7, 7))).loss.backward()
    for old, new in zip(before, model.target.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.1)
        assert new.grad is None


def test_byol_predicts_what_its_target_makes_of_the_other_view():
    model, data = (
        SSPL(dataclasses.replace(SMALL, objective="byol", momentum=1.0)),
        small_batch(11, (7, 7)),
    )
    zs = [model.branch(f_v, data.f_a).z for f_v in (data.f_v1, data.f_v2)]
    targets = [model.target(f_v, data.f_a).z for f_v in (data.f_v1, data.f_v2)]
    expected = losses.byol(model.predictor(zs[0]), model.predictor(zs[1]), *targets)
    torch.testing.assert_close(model(data).loss, expected)


def test_the_cluster_term_by_hand():
    """Cosines of every location with the prototypes, pooled softly; the sound's own cosines."""
    config = dataclasses.replace(
        SMALL, alignment=0.5, alignment_objective="clusters", clusters=7, alignment_temperature=0.3
    )
    model, data = SSPL(config), small_batch(11, (7, 7))
    unit = torch.nn.functional.normalize
    prototypes, heard = unit(model.prototypes, dim=1), unit(model.branch.g(data.f_a), dim=1)
    terms = []
    for f_v in (data.f_v1, data.f_v2):
        cosines = torch.einsum("kc,bcn->bkn", prototypes, unit(f_v, dim=1).flatten(2))
        seen = 0.3 * (cosines / 0.3).exp().mean(dim=2).log()
        terms.append(losses.swapped_prediction(seen, heard @ prototypes.T))
    loss, report = model(data)
    torch.testing.assert_close(report["alignment"], torch.stack(terms).mean().detach())
    torch.testing.assert_close(loss.detach(), report["objective"] + report["alignment"] / 2)


@pytest.mark.parametrize("pcm", [False, True])
def test_self_attention_of_the_maps_alone_leaves_the_training_as_it_is(pcm):
    torch.manual_seed(0)
    plain = SSPL(dataclasses.replace(SMALL, pcm=pcm))
    torch.manual_seed(0)
    smooth = SSPL(dataclasses.replace(SMALL, pcm=pcm, map_self_attention=0.2))
    data = small_batch(11, (7, 7))
    assert torch.equal(plain(data).loss, smooth(data).loss)
    plain.eval(), smooth.eval()
    expected = similarity(
        plain.branch.g(data.f_a),
        self_attended(plain.branch.refine(data.f_v1, data.f_a, None, trace=False)[0], 0.2),
    )
    torch.testing.assert_close(smooth.maps(data.f_v1, data.f_a), expected)
    torch.testing.assert_close(smooth.maps_by_cycle(data.f_v1, data.f_a)[-1], expected)
