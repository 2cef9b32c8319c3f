import dataclasses
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from filelock import FileLock

from made_files import install
from soundspot.common.config import from_dict, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders.views import random_view, view_generator
from soundspot.features import encoding
from soundspot.features.cache import FeatureCache, cache_folder, class_indices
from soundspot.features.spec import FeatureSpec, load_encoders
from soundspot.model import checkpoint
from soundspot.model.methods.method import Batch, Method, MethodOutput
from soundspot.model.methods.sspl import SSPL, SSPLConfig
from soundspot.training import loop
from soundspot.training.data import TrainingData, batches, steps_per_epoch, whole_split
from soundspot.training.loop import train
from soundspot.training.optimizer import WeightAverage, parameter_groups
from soundspot.training.recipe import (
    Recipe,
    TrainConfig,
    check_selection,
    read_features,
    read_recipe,
)

SPEC = FeatureSpec(pretrained=False, views=3, seed=7)  # of no other test: VGG16 is not used
SMALL = {"projection": 7, "hidden": 13}


class Mosaic(torch.nn.Module):
    """Coarse pixels in random channels, as VGG16 is slow and it does not matter what is learned."""

    def forward(self, image):
        weight = torch.randn(512, 3, 1, 1, generator=torch.Generator().manual_seed(0))
        return F.conv2d(F.avg_pool2d(image, 16), weight)


class Lonely(Method):
    """A method whose pairs know nothing of each other."""

    per_pair = True

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(512, 1024)

    def forward(self, batch):
        seen = self.layer(batch.f_v1.mean(dim=(2, 3)))
        return MethodOutput((seen - batch.f_a.mean(dim=1)).square().mean(), {})


def quick_encoders(*arguments):
    return load_encoders(*arguments)._replace(visual=Mosaic())


def encode_quickly(pairs, spec=SPEC):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoding, "load_encoders", quick_encoders)
        encoding.encode(pairs, cache_folder(pairs, spec), spec)


@pytest.fixture(scope="module")
def encoded(tiny_pairs):
    encode_quickly(tiny_pairs)
    return tiny_pairs


def recipe(pairs, model=None, **train_config):
    settings = {"epochs": 3, "batch": 4, "patience": 0, "select": "ciou", **train_config}
    return Recipe(pairs.root, "sspl", {**SMALL, **(model or {})}, SPEC, TrainConfig(**settings))


def build(plan):
    return checkpoint.build_method(plan.method, plan.model)


def scores(*values):
    """A validation that answers the given scores in turn."""
    answers = iter(values)
    return lambda method, cache, pairs: {"ciou": next(answers)}


def flat(method, cache, pairs):
    return {"ciou": 0.5}


def losses(run):
    lines = (run / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss"] for line in lines]


def data(pairs, seed=0, split="train", spec=SPEC):
    cache = FeatureCache.open(cache_folder(pairs, spec), pairs, spec)
    return TrainingData(pairs, split, cache, None, seed)


def test_an_epoch_shows_every_pair_once_with_two_different_views(encoded):
    draw = data(encoded).draw(epoch=5)
    assert sorted(draw.order) == list(range(11))
    assert (draw.views[:, 0] != draw.views[:, 1]).all()
    assert set(draw.views.flat) == {0, 1, 2}


def test_draws_depend_on_seed_and_epoch_alone(encoded):
    one, same = data(encoded).draw(1), data(encoded).draw(1)
    assert (one.order == same.order).all()
    assert one.sounds == same.sounds
    assert not (one.order == data(encoded).draw(2).order).all()
    other = data(encoded, seed=1).draw(1)
    assert not (one.order == other.order).all() and one.sounds != other.sounds


def test_sounds_are_heard_with_and_without_noise_if_that_is_asked_for(encoded):
    noisy = dataclasses.replace(SPEC, noisy=2)
    encode_quickly(encoded, noisy)
    source, plain = data(encoded, spec=noisy), data(encoded)
    draw = source.draw(1)
    assert set(draw.versions) == {0, 1, 2} and set(plain.draw(1).versions) == {0}
    assert draw.sounds == plain.draw(1).sounds and (draw.views == plain.draw(1).views).all()
    (batch,) = batches(source, 1, 11)
    (calm,) = batches(plain, 1, 11)
    as_it_is = torch.from_numpy(draw.versions[draw.order] == 0)
    assert torch.equal((batch.f_a == calm.f_a).flatten(1).all(dim=1), as_it_is)


def test_a_sound_is_of_the_class_and_split_of_its_frame(encoded):
    source = data(encoded)
    of = {sound.audio: sound for sound in encoded.sounds}
    for epoch in range(5):
        for pair, sound in zip(source.rows(), source.draw(epoch).sounds, strict=True):
            assert (of[sound].cls, of[sound].split) == (pair.cls, "train")


def test_processes_share_each_batch_and_starting_late_gives_the_same_batches(encoded):
    whole = list(batches(data(encoded), epoch=1, batch=4))
    assert len(whole) == steps_per_epoch(data(encoded), 4) == 2
    halves = [list(batches(data(encoded), 1, 4, rank=r, world=2)) for r in (0, 1)]
    for joint, even, odd in zip(whole, *halves, strict=True):
        torch.testing.assert_close(joint.f_v1[0::2], even.f_v1)
        torch.testing.assert_close(joint.f_a[1::2], odd.f_a)
    (late,) = batches(data(encoded), 1, 4, start=1)
    torch.testing.assert_close(late.f_v2, whole[1].f_v2)


def test_a_split_smaller_than_a_batch_is_refused(encoded):
    with pytest.raises(SoundspotError):
        steps_per_epoch(data(encoded), 12)


def test_online_views_are_encoded_anew_in_every_epoch(tiny_pairs):
    spec = dataclasses.replace(SPEC, views=0)  # in the same folder as the cache of three views
    encode_quickly(tiny_pairs, spec)
    cache = FeatureCache.open(cache_folder(tiny_pairs, spec), tiny_pairs, spec)
    encoders = quick_encoders(spec)
    source = TrainingData(tiny_pairs, "train", cache, encoders, 0)
    batch = next(batches(source, epoch=3, batch=2))
    index = int(source.draw(3).order[1])
    pixels = torch.from_numpy(tiny_pairs.frame(source.rows()[index])).permute(2, 0, 1)
    view = random_view(pixels, spec.augmentations, view_generator(0, 7, index))
    torch.testing.assert_close(batch.f_v2[1], encoders.visual(view[None])[0], rtol=1e-4, atol=1e-4)


def test_parameter_groups_are_the_papers():
    model = SSPL(SSPLConfig(c_v=5, c_a=3, pcm=True, cycles=2, projection=7, hidden=13))
    config = TrainConfig(lr_heads=0.2, lr=0.1, weight_decay=0.3)
    heads, rest, scalars = parameter_groups(model, config)
    names = {id(p): n for n, p in model.named_parameters()}
    assert {names[id(p)].split(".")[-2] for p in scalars["params"]} == {"a", "b"}
    assert (heads["lr"], rest["lr"], scalars["lr"]) == (0.2, 0.1, 0.1)
    assert (heads["weight_decay"], rest["weight_decay"], scalars["weight_decay"]) == (0.3, 0.3, 0)
    listed = [p for g in (heads, rest, scalars) for p in g["params"]]
    assert len(listed) == len(set(map(id, listed))) == len(names)


@pytest.mark.parametrize("model", [{}, {"pcm": True, "cycles": 2}])
def test_training_lowers_the_loss(encoded, tmp_path, model):
    train(recipe(encoded, model, epochs=6, lr=1e-3, lr_heads=1e-3), tmp_path, flat)
    course = losses(tmp_path)
    assert course[-1] < course[0] - 0.02


def test_amp_rounds_the_products_and_nothing_that_matters(encoded, tmp_path, monkeypatch):
    train(recipe(encoded, epochs=2), tmp_path / "exact", flat)
    for place, able in (("amp", True), ("unable", False)):
        monkeypatch.setattr(loop, "multiplies_bfloat16", lambda device, able=able: able)
        train(recipe(encoded, epochs=2, amp=True), tmp_path / place, flat)
    exact, rounded = losses(tmp_path / "exact"), losses(tmp_path / "amp")
    assert rounded != exact
    # A batch norm over four pairs amplifies what rounding changed, from step to step.
    assert rounded[0] == pytest.approx(exact[0], abs=0.05)
    assert losses(tmp_path / "unable") == exact
    results = [json.loads((tmp_path / p / "result.json").read_text()) for p in ("amp", "unable")]
    assert [r["provenance"]["products"] for r in results] == ["bfloat16", "float32"]


@pytest.mark.parametrize("average", [0.0, 0.5])
def test_a_resumed_run_gives_the_very_same_numbers(encoded, tmp_path, average):
    plan = recipe(encoded, average=average)
    train(plan, tmp_path / "whole", flat)
    train(plan, tmp_path / "parts", flat, stop_after=1)
    train(plan, tmp_path / "parts", flat, stop_after=2)
    train(plan, tmp_path / "parts", flat)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    one, two = (
        checkpoint.load(tmp_path / run / "last.safetensors")[0] for run in ("whole", "parts")
    )
    for left, right in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.equal(left, right)


INTERRUPTED = """
import os, signal, sys, torch
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_pre_hook
from soundspot.common.config import from_dict
from soundspot.training import loop
from soundspot.training.recipe import Recipe
import json
torch.set_num_threads(int(sys.argv[4]))
recipe = from_dict(Recipe, json.loads(sys.argv[1]))
count = 0
def counted(*_):
    global count
    count += 1
    if count == 4:  # in the middle of the second epoch
        os.kill(os.getpid(), getattr(signal, sys.argv[3]))
register_optimizer_step_pre_hook(counted)
loop.train(recipe, Path(sys.argv[2]), lambda *_: {"ciou": 0.5})
"""


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT"])
def test_a_run_killed_in_mid_epoch_resumes_with_the_same_losses(encoded, tmp_path, name):
    plan = recipe(encoded, save_minutes=0.0)
    train(plan, tmp_path / "whole", flat)
    run = tmp_path / "killed"
    command = [sys.executable, "-c", INTERRUPTED, json.dumps(to_dict(plan)), str(run), name]
    done = subprocess.run(
        [*command, str(torch.get_num_threads())], capture_output=True, text=True, check=False
    )
    assert done.returncode == -getattr(signal, name), done.stderr
    assert len(losses(run)) == 1
    train(plan, run, flat)
    assert losses(run) == losses(tmp_path / "whole")


def test_the_best_epoch_is_kept_and_patience_ends_the_run(encoded, tmp_path):
    plan = recipe(encoded, epochs=9, patience=2)
    answers = scores(0.1, 0.4, 0.2, 0.4, 0.9)  # of equal ones the first
    done = train(plan, tmp_path, answers, command="soundspot train mine")
    assert (done.validations, done.step) == (4, 8)
    assert (done.best_validation, done.best_step, done.best_score) == (2, 4, 0.4)
    _, card = checkpoint.load(tmp_path)
    assert (card.epoch, card.step, card.metrics) == (2, 4, {"val_ciou": 0.4})
    assert (card.provenance["data"], card.provenance["command"]) == ("tiny", "soundspot train mine")


def test_steps_and_validations_are_counted_across_epochs(encoded, tmp_path):
    """Two steps per epoch; validated every third step and at the end."""
    plan = recipe(encoded, steps=7, validate_every=3)
    done = train(plan, tmp_path, scores(0.1, 0.4, 0.2))
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], line["epoch"]) for line in lines] == [(3, 1.5), (6, 3), (7, 3.5)]
    assert [line["best"] for line in lines] == [True, True, False]
    assert all(line["seconds"] > 0 and line["train_z_std"] > 0 for line in lines)
    assert (done.step, done.best_step) == (7, 6)
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["steps"], result["steps_per_epoch"], result["best_step"]) == (7, 2, 6)


def test_validating_more_often_does_not_change_the_training(encoded, tmp_path):
    train(recipe(encoded, epochs=3), tmp_path / "epochs", flat)
    train(recipe(encoded, steps=6, validate_every=1), tmp_path / "steps", flat, stop_after=3)
    train(recipe(encoded, steps=6, validate_every=1), tmp_path / "steps", flat)
    by_step = losses(tmp_path / "steps")
    assert [(a + b) / 2 for a, b in zip(by_step[::2], by_step[1::2], strict=True)] == pytest.approx(
        losses(tmp_path / "epochs"), rel=1e-6
    )


@pytest.fixture(scope="module")
def unlabeled(tmp_path_factory):
    from soundspot.data.pair_set import Pair
    from soundspot.data.writer import PairWriter

    writer = PairWriter(tmp_path_factory.mktemp("plain") / "pairs", "plain", "event", {})
    writer.begin()
    rng = np.random.default_rng(0)
    rows = []
    for k in range(8):
        frame = writer.add_frame(f"f{k}", lambda: rng.integers(0, 255, (8, 8, 3), dtype=np.uint8))
        sound = writer.add_sound(f"s{k}", lambda: rng.uniform(-1, 1, 48_000).astype(np.float32))
        rows.append(Pair(f"p{k}", frame, sound, "train" if k < 5 else "val"))
    pairs = writer.finish(rows, (), ()).pairset
    encode_quickly(pairs)
    return pairs


def test_without_boxes_the_validation_loss_of_every_pair_selects(unlabeled, tmp_path):
    """Three pairs in batches of two: each pair counts the same, not each batch."""
    done = train(recipe(unlabeled, select="loss", epochs=2, batch=2), tmp_path, flat)
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert done.best_score == max(-line["val_loss"] for line in lines)
    assert lines[0]["val_loss"] != lines[1]["val_loss"]
    method, _ = checkpoint.load(tmp_path / "last.safetensors")
    (whole,) = whole_split(data(unlabeled, split="val"), 4)
    assert [len(b.cls) for b in whole_split(data(unlabeled), 2)] == [2, 2, 1]
    assert lines[1]["val_loss"] == pytest.approx(method(whole).loss.item(), rel=1e-5)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml")), ids=lambda p: p.stem
)
def test_the_recipes_can_be_read_and_open_with_what_to_expect(path):
    made = read_recipe(path)
    head = path.read_text().splitlines()
    assert any(line.startswith("# Expected: 0.") for line in head)
    assert any(line.startswith("# Command:") for line in head)
    if path.stem.startswith("escvoc"):
        return
    pcm = made.model.get("pcm", False)
    config = made.train
    assert (config.batch, config.weight_decay) == (256, 1e-4)
    assert config.epochs == (20 if pcm else 100)
    rates = (5e-5, 2e-5) if pcm else (2e-3, 5e-4) if "flickr" in path.stem else (1e-2, 5e-3)
    assert (config.lr_heads, config.lr) == rates
    assert made.features.audio == "vggish"


def test_a_selection_that_cannot_be_judged_is_refused_at_once(unlabeled, encoded, tmp_path):
    for pairs, select in ((unlabeled, "ciou"), (encoded, "loss")):  # without boxes, and with them
        with pytest.raises(SoundspotError):
            train(recipe(pairs, select=select), tmp_path, flat)
    assert not list(tmp_path.iterdir())


def test_a_set_without_a_validation_split_is_refused(unlabeled):
    plan = recipe(unlabeled, select="loss")
    check_selection(plan, unlabeled)
    learned = [dataclasses.replace(pair, split="train") for pair in unlabeled.pairs]
    with pytest.raises(SoundspotError):
        check_selection(plan, dataclasses.replace(unlabeled, pairs=tuple(learned)))


def test_a_second_training_in_the_same_folder_is_refused(encoded, tmp_path):
    tmp_path.joinpath("run").mkdir()
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(SoundspotError):
        train(recipe(encoded), tmp_path / "run", flat)


def test_what_a_kill_leaves_half_written_is_cut_and_swept_away(encoded, tmp_path):
    """Between the first epoch's line and its state."""
    train(recipe(encoded), tmp_path / "whole", flat)
    run = tmp_path / "killed"
    train(recipe(encoded), run, flat, stop_after=1)
    (run / "state.pt").unlink()
    left = [
        run / ".last.0123abcd.safetensors",
        run / ".state.0123abcd.pt",
        run / ".best.01ab23cd.json",
    ]
    for path in left:
        path.write_bytes(b"half")
    train(recipe(encoded), run, flat)
    assert losses(run) == losses(tmp_path / "whole")
    assert not any(path.exists() for path in left)


def test_a_run_is_not_resumed_with_another_recipe(encoded, tmp_path):
    train(recipe(encoded), tmp_path, flat, stop_after=1)
    with pytest.raises(SoundspotError):
        train(recipe(encoded, lr=0.123), tmp_path, flat)
    train(recipe(encoded, epochs=4), tmp_path, flat)  # more epochs may be asked for
    assert len(losses(tmp_path)) == 4


def test_parts_of_a_batch_add_up_where_pairs_know_nothing_of_each_other(encoded, tmp_path):
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "build_method", lambda *_: Lonely())
        for parts in (1, 2):
            train(recipe(encoded, accumulate=parts), tmp_path / str(parts), flat)
            found[parts] = losses(tmp_path / str(parts))
    assert found[2] == pytest.approx(found[1], rel=1e-5)
    with pytest.raises(SoundspotError):  # SSPL has batch norms
        train(recipe(encoded, accumulate=2), tmp_path / "sspl", flat)


LOGGER = """
def start(run, recipe):
    if recipe["train"]["seed"] == 1:
        return lambda line: 1 / 0
    def log(line):
        with open(run / "seen.txt", "a") as file:
            file.write(f"{line['step']} {line['train_loss'] > -2}" + chr(10))
    return log
"""


@pytest.mark.parametrize(("seed", "seen"), [(0, ["2 True", "4 True"]), (1, [])])
def test_an_installed_logger_gets_every_line_and_stops_no_run(
    encoded, tmp_path, monkeypatch, seed, seen
):
    install(tmp_path, "loggers", "mine = seen_log:start")
    (tmp_path / "seen_log.py").write_text(LOGGER)
    monkeypatch.syspath_prepend(tmp_path)
    train(recipe(encoded, epochs=2, seed=seed), tmp_path / "run", flat)
    path = tmp_path / "run/seen.txt"
    assert (path.read_text().splitlines() if path.exists() else []) == seen
    assert len(losses(tmp_path / "run")) == 2


def test_tensorboard_has_the_log(encoded, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(recipe(encoded, epochs=2, tensorboard=True), tmp_path / "run", flat)
    events = EventAccumulator(str(tmp_path / "run")).Reload().Scalars("train/loss")
    assert [event.step for event in events] == [2, 4]
    assert [event.value for event in events] == pytest.approx(losses(tmp_path / "run"))


def test_a_loss_that_is_not_a_number_stops_with_a_sentence(encoded, tmp_path):
    with pytest.raises(SoundspotError):
        train(recipe(encoded, lr=1e30, lr_heads=1e30), tmp_path, flat)


def test_a_run_that_cannot_start_leaves_its_folder_to_the_next(encoded, tmp_path):
    train(recipe(encoded), tmp_path, flat, stop_after=1)
    state = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(state[:1000])
    for _ in range(2):  # the second must not be told that another process is training
        with pytest.raises(SoundspotError):
            train(recipe(encoded), tmp_path, flat)
    (tmp_path / "state.pt").write_bytes(state)
    assert train(recipe(encoded), tmp_path, flat).validations == 3


def test_weight_average_by_hand():
    """Whole numbers are not averaged but copied."""
    norm = torch.nn.BatchNorm1d(1)
    average = WeightAverage(norm, 0.75)
    with torch.no_grad():
        norm.weight.fill_(5.0)
        norm.num_batches_tracked += 7
    average.update(norm)
    with average.applied(norm):
        assert norm.weight.item() == 2.0 and norm.num_batches_tracked == 7
    assert norm.weight.item() == 5.0


def test_a_loss_that_bfloat16_would_round_away_stays_in_float32(encoded, tmp_path):
    for amp in (False, True):
        plan = dataclasses.replace(recipe(encoded, epochs=1, amp=amp), method="cavl", model={})
        train(plan, tmp_path / str(amp), flat)
    assert losses(tmp_path / "True") == losses(tmp_path / "False")
    made_by = json.loads((tmp_path / "True" / "result.json").read_text())["provenance"]
    assert made_by["products"] == "float32"


def test_silence_is_what_the_audio_encoder_makes_of_it(encoded, tmp_path):
    plan = dataclasses.replace(recipe(encoded, epochs=1), method="sslsan", model={})
    train(plan, tmp_path, flat)
    method, _ = checkpoint.load(tmp_path / "last.safetensors")
    silence = load_encoders(SPEC).audio(torch.zeros(1, 48_000))[0]
    torch.testing.assert_close(method.unseen[0], silence)


def test_in_stage_two_of_dsol_the_classifier_of_sounds_stays_as_it_is(encoded, tmp_path):
    settings = {"epochs": 2, "validate_every": 2, "lr": 0.01, "weight_decay": 0.1}
    plan = dataclasses.replace(
        recipe(encoded, **settings), method="dsol", model={"stage_one": 2, "kinds": 3}
    )
    kept = []

    def keep(method, cache, pairs):
        kept.append([p.detach().clone() for p in method.class_a.parameters()])
        return {"ciou": 0.5}

    train(plan, tmp_path / "run", keep)
    before, after = kept
    assert all(torch.equal(*both) for both in zip(before, after, strict=True))


def test_the_advice_without_a_cache_is_the_command_that_makes_it(encoded, tmp_path):
    spec = dataclasses.replace(SPEC, audio="vggish", augmentations=("crop",), views=5)
    plan = dataclasses.replace(recipe(encoded), features=spec, model={})
    with pytest.raises(SoundspotError) as error:
        train(plan, tmp_path / "run", flat)
    _, command, _ = str(error.value).split("`")
    program, verb, folder, *settings = shlex.split(command)
    assert (program, verb, Path(folder)) == ("soundspot", "encode", encoded.root)
    assert read_features(None, settings) == spec


@pytest.mark.parametrize(
    "bad",
    [
        *({"model": {"cycels": 3}}, {"method": "spl"}, {"model": {"c_v": 256}}),
        *({"train": {"weight_decay": -1}}, {"train": {"average": 1.0}}, {"train": {"batch": 1}}),
    ],
)
def test_recipes_are_checked_when_read(bad):
    with pytest.raises(SoundspotError):
        from_dict(Recipe, {"pairs": "x", **bad})
    made = from_dict(Recipe, {"pairs": "x", "features": {"audio": "vggish"}})
    assert made.model["c_a"] == 128
    assert from_dict(Recipe, to_dict(made)) == made
    assert made.model["cycles"] == 5  # defaults are spelt out


def test_channels_follow_from_the_encoder_and_names_is_not_trained(tiny_pairs):
    values = {"pairs": str(tiny_pairs.root), "features": {"visual": "mobilenetv2"}}
    assert from_dict(Recipe, {**values, "method": "contrastive"}).model["c_v"] == 1280
    joined = {**values, "features": {"visual": "vgg16+mobilenetv2"}}
    model = from_dict(Recipe, {**joined, "method": "contrastive"}).model
    assert (model["c_v"], model["parts"]) == (1792, [512, 1280])
    assert from_dict(Recipe, {**joined, "method": "sspl"}).model["c_v"] == 1792
    with pytest.raises(SoundspotError):
        check_selection(from_dict(Recipe, {**values, "method": "names"}), tiny_pairs)


def test_an_export_does_not_destroy_its_source(tmp_path):
    for target in ("run/best.safetensors", "slim.json"):
        with pytest.raises(SoundspotError):
            checkpoint.export(tmp_path / "run", tmp_path / target)


def test_class_indices_follow_the_alphabet(encoded):
    batch = next(batches(data(encoded), 0, 4))
    assert isinstance(batch, Batch)
    order = data(encoded).draw(0).order[:4]
    expected = [0 if data(encoded).rows()[i].cls == "high" else 1 for i in order]
    np.testing.assert_array_equal(batch.cls, expected)
    rows = [dataclasses.replace(data(encoded).rows()[0], cls=name) for name in ("b", None, "a")]
    assert class_indices(rows).tolist() == [1, -1, 0]


def test_the_average_of_all_steps_is_saved(encoded, tmp_path):
    """The weights after every step are those of the same training without an average."""
    plan = recipe(encoded, epochs=2, validate_every=1, lr=0.01, lr_heads=0.01)
    torch.manual_seed(plan.train.seed)
    weights = [{k: v.clone() for k, v in build(plan).named_parameters()}]

    def keep(method, cache, pairs):
        weights.append({k: v.clone() for k, v in method.named_parameters()})
        return {"ciou": 0.5}

    train(plan, tmp_path / "plain", keep)
    assert len(weights) == 5
    train(recipe(encoded, epochs=2, average=0.75, lr=0.01, lr_heads=0.01), tmp_path / "mean", flat)
    saved = checkpoint.load(tmp_path / "mean" / "last.safetensors")[0].state_dict()
    for name, expected in weights[0].items():
        for after in weights[1:]:
            expected = 0.75 * expected + 0.25 * after[name]
        torch.testing.assert_close(saved[name], expected, rtol=1e-5, atol=1e-6)
