import json
from pathlib import Path

from soundspot.common.files import ShardJournal, split_into_blocks, surplus_shards


def journal(folder: Path, digest: str = "abc") -> ShardJournal:
    return ShardJournal(folder / ".shard-00000.jsonl", folder / "maps-00000.npz", ("files", digest))


def test_a_shard_is_kept_while_its_inputs_and_its_file_are_the_same(tmp_path: Path) -> None:
    shard = journal(tmp_path)
    assert not shard.fits()
    shard.data.write_bytes(b"12345")
    assert not shard.fits()
    shard.write([{"path": "\udcff.mp4"}, ["b"]])
    assert json.loads(shard.path.read_text().splitlines()[0]) == {"files": "abc", "size": 5}
    assert shard.fits()
    assert not journal(tmp_path, "other").fits()
    assert [json.loads(line) for line in shard.lines()] == [{"path": "\udcff.mp4"}, ["b"]]
    shard.data.write_bytes(b"1234")
    assert not shard.fits()


def test_a_discarded_or_torn_journal_does_not_fit(tmp_path: Path) -> None:
    shard = journal(tmp_path)
    shard.data.write_bytes(b"12345")
    shard.write([])
    shard.discard()
    assert not shard.fits()
    shard.path.write_text('{"files"')
    assert not shard.fits()


def test_blocks_and_surplus_shards() -> None:
    assert split_into_blocks("abcdefg", 3) == ["abc", "def", "g"]
    paths = [Path("shard-000001.tar"), Path(".shard-000002.jsonl"), Path("overlays/00003")]
    assert list(surplus_shards(paths, 2)) == paths[1:]
