"""Tables of a tiny pair set, with random encoders."""

import json
import shutil
from dataclasses import replace

import pytest

from soundspot.common.config import from_dict, to_dict
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.reproduce import experiments, runs
from soundspot.reproduce.records import Scores, add_record

SMALL = {"features": {"pretrained": False, "views": 2}}
SMALL["train"] = {"steps": 2, "validate_every": 1, "batch": 4, "patience": 0, "select": "ciou"}
SSPL = {"method": "sspl", "model": {"projection": 7, "hidden": 13}, **SMALL}
BASES = {"tiny": {"sspl": SSPL, "contrastive": {"method": "contrastive", **SMALL}}, "flickr": {}}
PLAIN = {"label": "plain", "published": {"flickr10k/flickr": [0.5, 0.4]}}
GUIDED = {"label": "guided", "base": "contrastive", "guidance": 0.25}
BENCHMARKS = "escvoc-val", "escvoc-duets-val"
FIGURES = "success", "steps", "examples", "iterations"


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The folder of tables: plain, full, and one per figure."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "bases.yaml").write_text(json.dumps(BASES))
    options = {"plain": {}, "full": {"figure": "steps", "bench": True, "gflops": True}}
    options |= {name: {"figure": name} for name in FIGURES}
    for name, more in options.items():
        content = {"title": f"Table {name}", "note": "A note.", "lines": [PLAIN, GUIDED], **more}
        (folder / f"{name}.yaml").write_text(json.dumps(content))
    monkeypatch.setattr(experiments, "TABLES", folder)
    return folder


@pytest.fixture(scope="module")
def pairs(tiny_pairs, tmp_path_factory, thin_vgg16):
    """A copy of the tiny set, since reproducing encodes into it."""
    root = tmp_path_factory.mktemp("reproduce") / "pairs"
    shutil.copytree(tiny_pairs.root, root, ignore=shutil.ignore_patterns("features"))
    return type(tiny_pairs).open(root)


@pytest.fixture
def make_plan(pairs):
    """A plan of a table; most tests share their runs, as tables do."""

    def make(name="plain", folder=None, seeds=1, **changes):
        media = runs.find_media(pairs.root, pairs.root, BENCHMARKS, None)
        kept = folder or pairs.root.parent / "runs"
        plan = runs.ReproductionPlan(
            *(name, *runs.describe(media), media, seeds, False, kept, kept / "records.jsonl.gz")
        )
        return replace(plan, **changes)

    return make


@pytest.fixture
def keep():
    """Write a hand-made record of a line: three of five pairs are found if `ciou` is a half."""

    def write(plan, number=0, seed=0, ciou=0.75, **changes):
        line = experiments.find_table(plan.name).lines[number]
        recipe = experiments.recipe_of(line, plan.data, seed, plan.quick)
        log = {"step": 1, "seconds": 3.0, "best": True, "val_ciou": 0.5, "train_z_std": 0.9}
        origin = {"commit": "abc", "data": "tiny", "data_fingerprint": plan.data.fingerprint}
        columns = dict.fromkeys(PROTOCOLS, (ciou, ciou, ciou, 0.25, 0.0))
        about = {"label": recipe.method, **plan.tested_on._asdict(), "by_protocol": columns}
        about |= {"guidance": line.guidance, "ms": 2.0, "duets": (0.5,), "commit": "abc"}
        about |= {"recipe": to_dict(recipe), "provenance": origin, "steps": 2, "best_step": 1}
        scores = from_dict(Scores, {**about, "epochs": [log], **changes})
        add_record(plan.records, scores)
        return scores

    return write
