import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.saved_maps import SavedMaps


def save_maps(folder, maps):
    folder.mkdir()
    for id, values in maps.items():
        np.save(folder / f"{id}.npy", values)
    return folder


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((1, 7, 7)), "expected the map of val-0 to be numbers of shape height x width"),
        (np.full((7, 7), np.nan), "val-0 contains NaN or infinity"),
        (np.array([["a"]]), "numbers of shape"),
        (np.zeros((0, 7)), "numbers of shape"),
    ],
)
def test_files_without_a_map_are_refused(tmp_path, values, message):
    saved = SavedMaps(save_maps(tmp_path / "maps", {"val-0": values}))
    with pytest.raises(SoundspotError, match=message):
        saved.read(["val-0"])


def test_maps_of_two_sizes_and_damaged_files_are_refused(tmp_path):
    folder = save_maps(tmp_path / "maps", {"a": np.eye(5), "b": np.eye(7)})
    with pytest.raises(SoundspotError, match="the same size, but a is 5x5 and b 7x7"):
        SavedMaps(folder).read(["a", "b"])
    (folder / "c.npy").write_bytes(b"PK damaged")
    with pytest.raises(SoundspotError, match=r"c\.npy is not a readable NumPy file"):
        SavedMaps(folder).read(["c"])
    with pytest.raises(SoundspotError, match=r"any of the 1 pairs: expected files such as x\.npy"):
        SavedMaps(folder).available(["x"])
    with pytest.raises(SoundspotError, match="no folder of maps"):
        SavedMaps(tmp_path / "nowhere")


def test_an_archive_that_claims_an_unknown_compression_is_refused(tmp_path):
    archive = tmp_path / "maps.npz"
    np.savez(archive, a=np.ones((7, 7)))
    data = archive.read_bytes()
    entry = data.index(b"PK\x01\x02")  # the central directory; its method is 10 bytes in
    archive.write_bytes(data[: entry + 10] + b"\x63\x00" + data[entry + 12 :])
    with pytest.raises(SoundspotError, match=r"maps\.npz is not a readable NumPy file"):
        SavedMaps(tmp_path).read(["a"])
