"""benchmarks/tune_methods.py: the same budget for every method, on validation data alone."""

import json
from pathlib import Path

import pytest

from made_files import load_script
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.reproduce import experiments

pytestmark = pytest.mark.usefixtures("thin_vgg16")

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "tune_methods.py"
SMALL = {"features": {"pretrained": False, "views": 2}}
SMALL["train"] = {"steps": 300, "validate_every": 50, "batch": 4, "lr": 5e-4, "lr_heads": 2e-3}
MODEL = {"projection": 7, "hidden": 13}
BASES = {"tiny": {"sspl": {"method": "sspl", "model": MODEL, **SMALL}}}
BASES["tiny"]["rival"] = {"method": "contrastive", **SMALL}
LINES = [
    {"label": "SSPL"},
    {"label": "guided", "guidance": 0.25},
    {"label": "FNAC", "base": "rival", "settings": ["method=fnac", "model.warmup=100"]},
]


@pytest.fixture(scope="module")
def script():
    return load_script(SCRIPT)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "bases.yaml").write_text(json.dumps(BASES))
    main = {"title": "Methods", "note": "A note.", "lines": LINES}
    (folder / "main.yaml").write_text(json.dumps(main))
    monkeypatch.setattr(experiments, "TABLES", folder)


@pytest.mark.slow
def test_trials_are_shared_and_skipped(script, own_pairs, tables, tmp_path, capsys):
    pairs, root = own_pairs, own_pairs.root  # without a test split: reading one would fail
    spec = FeatureSpec(pretrained=False, views=2)
    encode(pairs, cache_folder(pairs, spec), spec)
    out = tmp_path / "out" / "tuning.jsonl"
    basic = [str(root), "-o", str(out), "--runs", str(tmp_path / "runs"), "--steps", "2"]
    basic += ["--batch", "4"]
    script.main([*basic, "--shard", "0/2"])
    first = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["line"], row["lr"]) for row in first] == [
        ("SSPL", 2e-4),
        ("SSPL", 2e-3),
        ("FNAC", 5e-4),
    ]
    row = first[0]
    assert set(row["val"]) == {"ciou", "auc", "duets"}
    assert row["settings"]["lr_heads"] == pytest.approx(8e-4)
    assert row["settings"]["model"] == MODEL
    assert row["data_fingerprint"] == pairs.fingerprint()[:16]
    assert {"command", "commit", "seed", "seconds", "steps", "best_step"} <= set(row)
    assert first[2]["shortened"] == {"warmup": [100, 1]}
    assert not any((tmp_path / "runs").iterdir())

    script.main([*basic, "--method", "sspl"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["line"], row["lr"]) for row in rows[3:]] == [("SSPL", 5e-4)]
    shown = capsys.readouterr()
    assert shown.err.count("finished before") == 2
    assert "3 of 3" in shown.out and "FNAC" not in shown.out.split("3 of 3")[1]
    with pytest.raises(SystemExit):
        script.main([*basic, "--method", "fnak"])
