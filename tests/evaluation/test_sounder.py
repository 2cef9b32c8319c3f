import json
from pathlib import Path

import pytest

from soundspot.cli import main
from soundspot.common.errors import SoundspotError
from soundspot.evaluation.annotations import vggss_subset
from soundspot.evaluation.sounder import audit_vggss, write_lists

CLIPS = {"a": "dog", "b": "dog", "c": "cat", "d": "cat", "e": "owl"}
ROWS = """video_id,label,modality,background_music
a,dog,AV,False
a,"rain, heavy",A,False
b,dog,AV,False
b,car,V,False
c,cat,A,False
d,owl,AV,True
zzz,dog,AV,False
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    clips = [{"file": id, "class": cls, "bbox": [[0, 0, 1, 1]]} for id, cls in CLIPS.items()]
    (tmp_path / "vggss.json").write_text(json.dumps(clips))
    (tmp_path / "sounder.csv").write_text(ROWS)
    return tmp_path / "sounder.csv", tmp_path


def test_the_join_by_hand(files):
    audit = audit_vggss(*files)
    assert (audit.clips, audit.joined) == (5, 4)
    assert audit.modalities == {"AV": 2, "A": 1, "": 1}
    assert audit.verified == ("a", "b")
    assert audit.offscreen == ("a", "c")
    assert audit.single == ("b",)


def test_the_lists_are_read_as_benchmarks(files):
    sounder, folder = files
    write_lists(audit_vggss(sounder, folder), folder)
    assert [item.id for item in vggss_subset("vggss_verified.txt", folder)] == ["a", "b"]


@pytest.mark.parametrize("text", [None, "", "video_id,label\n", ROWS.replace("AV", "?"), "\0"])
def test_another_file_is_refused(files, text):
    sounder, folder = files
    sounder.unlink()
    if text is not None:
        sounder.write_text(text)
    with pytest.raises(SoundspotError):
        audit_vggss(sounder, folder)
    assert main(["audit", "--sounder", str(sounder), "--annotations", str(folder)]) == 2
