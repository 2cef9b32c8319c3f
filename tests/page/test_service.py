"""The service over HTTP in docs/python.md."""

import re
from pathlib import Path

import numpy as np
from fastapi.testclient import TestClient

import soundspot
from brightness import brightness_localizer
from soundspot.media.clips import write_video

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_service_answers_and_refuses(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(soundspot, "load", brightness_localizer)
    (block,) = re.findall(r"^```py\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict = {}
    exec(compile(block, PAGE.name, "exec"), names)
    client = TestClient(names["app"])
    frame = np.full((48, 64, 3), 40, np.uint8)
    sound = np.random.default_rng(0).normal(0, 0.2, 32_000).astype(np.float32)
    write_video(tmp_path / "clip.mp4", [frame] * 10, sound, 5.0)
    answer = client.post("/localize", files={"video": (tmp_path / "clip.mp4").read_bytes()})
    assert answer.json()["width"] == 64
    refused = client.post("/localize", files={"video": b"no video"})
    assert (refused.status_code, refused.json()["detail"]["code"]) == (422, "unreadable")
