"""Make the file by which mixtures are split (see `model.sound_classes`).

    python benchmarks/fit_sound_classes.py --data data --cache FOLDER [--write]

The mean audio features are those of ESC-VOC's training sounds, and so are the mixtures that the
classifier learns from. How much the picture counts beside the sound, and how sure a source must be,
are chosen on escvoc-mix val.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional as F

from soundspot.common.progress import progress
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.benchmarks import annotated_scenes
from soundspot.evaluation.listening import peak_in_truth
from soundspot.evaluation.metrics import truth_maps
from soundspot.evaluation.predictions import encode_now
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import open_model
from soundspot.media.sound import mix
from soundspot.model.sound_classes import SOUND_CLASSES, logits, weigh

MIXTURES = 2_500
RIDGE = 1e-4
PASS = 0.9  # of the true second sounds
COUNTS = 0, 1, 2, 3, 4, 5, 6, 7, 8, 10  # of the picture beside the sound


def hear_training(model: Localizer, pairs: PairSet) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """The classes, their typical features, and the features and classes of single and mixed."""
    sounds = [sound for sound in pairs.sounds if sound.split == "train"]
    names = sorted({sound.cls for sound in sounds})
    waves = [pairs.waveform(sound.audio) for sound in sounds]
    owner = np.array([names.index(sound.cls) for sound in sounds])
    heard = [model.hear([wave])[0] for wave in progress(waves, "hearing training sounds")]
    typical = [
        torch.cat([f_a for f_a, own in zip(heard, owner, strict=True) if own == k]).mean(dim=0)
        for k in range(len(names))
    ]
    truths = list(np.eye(len(names))[owner])
    rng = np.random.default_rng(0)
    for _ in progress(range(MIXTURES), "hearing mixtures"):
        a, b = rng.choice(len(names), 2, replace=False)
        i, j = rng.choice(np.flatnonzero(owner == a)), rng.choice(np.flatnonzero(owner == b))
        both = mix(waves[i], np.roll(waves[j], int(rng.integers(len(waves[j])))))
        heard.append(model.hear([both])[0])
        truths.append(np.eye(len(names))[[a, b]].sum(axis=0))
    return names, torch.stack(typical), torch.stack(heard), torch.tensor(np.array(truths)).float()


def fit(f_a: Tensor, truths: Tensor) -> tuple[Tensor, Tensor]:
    """The classifier of mixtures."""
    weight = torch.zeros(truths.shape[1], f_a.shape[2], requires_grad=True)
    bias = torch.zeros(truths.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        wrong = F.binary_cross_entropy_with_logits(logits(f_a, weight, bias), truths)
        loss = wrong + RIDGE * (weight**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[arg-type]
    return weight.detach(), bias.detach()


def class_maps(model: Localizer, pairs: PairSet, typical: Tensor, cache: Path) -> np.ndarray:
    """The maps of every class on every picture of escvoc-mix val."""
    file = cache / "class_maps.npy"
    if not file.exists():
        frames = list(dict.fromkeys(scene.frame for scene in annotated_scenes(pairs, "val")))
        seen = encode_now(model.learned, pairs, frames, ())
        maps = [
            model.learned.method.maps(
                seen.evaluation([frame]).expand(len(typical), -1, -1, -1), typical[:, None]
            )
            for frame in progress(frames, "maps of classes")
        ]
        np.save(file, torch.stack(maps).numpy())
    return np.load(file)


@torch.inference_mode()
def main() -> None:
    """Fit, choose and maybe write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help="replace sound_classes.safetensors")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    model = open_model(None, "cpu")
    file = options.cache / "training.npz"
    if not file.exists():
        names, *found = hear_training(model, PairSet.open(options.data / "escvoc"))
        np.savez(file, *(part.numpy() for part in found), names=names)
    stored = np.load(file)
    typical, f_a, truths = (torch.from_numpy(stored[f"arr_{k}"]) for k in range(3))
    names = stored["names"].tolist()
    with torch.inference_mode(mode=False):
        weight, bias = fit(f_a.clone(), truths.clone())

    pairs, duets = (PairSet.open(options.data / name) for name in ("escvoc-mix", "escvoc"))
    maps = class_maps(model, pairs, typical, options.cache)
    scenes = annotated_scenes(pairs, "val")
    peaks = torch.from_numpy(maps.max(axis=(2, 3)) / (model.threshold or 1.0))
    usual = peaks.mean(dim=0)
    mixed, single = (
        logits(torch.cat([model.hear([some.waveform(name)]) for name in audio]), weight, bias)
        for some, audio in (
            (pairs, [scene.audio for scene in scenes[::2]]),
            (duets, [scene.audio for scene in annotated_scenes(duets, "duets-val")[::2]]),
        )
    )
    scores = np.stack(
        [model.name_scores(model.hear([pairs.waveform(one.audio)]))[0] for one in scenes[::2]]
    )
    assert model.table is not None
    least = scores[:, model.table.learned].max(axis=1).min()
    sys.stdout.write(f"in every mixture, a learned sound has a score of at least {least:.3f}\n")
    own = truth_maps([scene.boxes for scene in scenes])
    classes = [names.index(scene.cls or "") for scene in scenes]
    at_home = peak_in_truth(np.stack([maps[k // 2, c] for k, c in enumerate(classes)]), own)
    best = 0.0, 0.0, 0.0
    for count in COUNTS:
        scores = [weigh(heard, peaks, usual, count) for heard in (mixed, single)]
        chosen = scores[0].argsort(dim=1, descending=True)[:, :2]
        found = [c in chosen[k // 2] and at_home[k] for k, c in enumerate(classes)]
        both = float(np.mean(np.reshape(found, (-1, 2)).all(axis=1)))
        second, stray = (one.sort(dim=1).values[:, -2].numpy() for one in scores)
        least = float(np.quantile(second, 1 - PASS))
        refused = float((stray < least).mean())
        sys.stdout.write(
            f"picture counts {count}: both found {both:.3f}; from {least:.2f}, which the second "
            f"of two reaches in {PASS}, that of one is refused in {refused:.3f}\n"
        )
        best = max(best, (both + refused, float(count), least))
    if options.write:
        tensors = {"typical": typical, "weight": weight, "bias": bias}
        tensors["usual"] = usual
        kept = {key: value.half().contiguous() for key, value in tensors.items()}
        about = {"names": ",".join(names), "picture": f"{best[1]:g}", "least": f"{best[2]:.2f}"}
        SOUND_CLASSES.write_bytes(save(kept, about))


if __name__ == "__main__":
    main()
