"""Pages that are made from committed results say what the results say."""

import json
from pathlib import Path

import pytest

from made_files import load_script

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "reproduce"


def script(name):
    return load_script(ROOT / "docs" / f"{name}.py")


def test_the_page_of_results_is_up_to_date():
    built = script("build_results").build(RESULTS, ROOT / "docs" / "readings.yaml")
    assert (ROOT / "docs" / "results.md").read_text() == built, "run python docs/build_results.py"


@pytest.mark.parametrize("path", sorted((ROOT / "soundspot" / "pretrained").glob("*.safetensors")))
def test_every_model_has_an_up_to_date_card(path):
    module = script("build_models")
    report = json.loads(module.RESULTS.read_text())
    card = module.card(path.stem, report, module.read_words())
    assert path.with_suffix(".md").read_text() == card, "run python docs/build_models.py"


def test_models_stay_small():
    sizes = [p.stat().st_size for p in (ROOT / "soundspot" / "pretrained").glob("*.safetensors")]
    assert 0 < sum(sizes) < 40e6


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_results_say_who_made_them(path):
    found = json.loads(path.read_text())
    assert found["table"] == path.stem
    assert found["command"].startswith(f"soundspot reproduce {path.stem}")
    commits = {found["commit"]} | {s["commit"] for line in found["lines"] for s in line["seeds"]}
    assert not [commit for commit in commits if commit.endswith("-dirty")]
    assert found["data_fingerprint"]
