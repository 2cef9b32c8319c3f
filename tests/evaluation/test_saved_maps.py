import numpy as np
import pytest

from made_files import save_maps
from soundspot.common.errors import SoundspotError
from soundspot.evaluation.saved_maps import SavedMaps


@pytest.mark.parametrize(
    "values", [np.zeros((1, 7, 7)), np.full((7, 7), np.nan), np.array([["a"]]), np.zeros((0, 7))]
)
def test_files_without_a_map_are_refused(tmp_path, values):
    saved = SavedMaps(save_maps(tmp_path / "maps", {"val-0": values}))
    with pytest.raises(SoundspotError):
        saved.read(["val-0"])


def test_maps_of_two_sizes_and_damaged_files_are_refused(tmp_path):
    folder = save_maps(tmp_path / "maps", {"a": np.eye(5), "b": np.eye(7)})
    with pytest.raises(SoundspotError):
        SavedMaps(folder).read(["a", "b"])
    (folder / "c.npy").write_bytes(b"PK damaged")
    with pytest.raises(SoundspotError):
        SavedMaps(folder).read(["c"])
    with pytest.raises(SoundspotError):
        SavedMaps(folder).available(["x"])
    with pytest.raises(SoundspotError):
        SavedMaps(tmp_path / "nowhere")


def test_an_archive_that_claims_an_unknown_compression_is_refused(tmp_path):
    archive = tmp_path / "maps.npz"
    np.savez(archive, a=np.ones((7, 7)))
    data = archive.read_bytes()
    entry = data.index(b"PK\x01\x02")  # the central directory; its method is 10 bytes in
    archive.write_bytes(data[: entry + 10] + b"\x63\x00" + data[entry + 12 :])
    with pytest.raises(SoundspotError):
        SavedMaps(tmp_path).read(["a"])
