from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import BENCHMARKS, Benchmark
from soundspot.evaluation.scenes import NO_MEDIA, find_scenes

BOX = ((0.25, 0.25, 0.75, 0.75),)


def test_media_are_found_by_id(monkeypatch, tmp_path, tiny_pairs):
    items = [BenchmarkItem(id, id, id, (BOX,)) for id in ("val-0", "elsewhere")]
    items.append(BenchmarkItem("val-1+val-2", "val-1", "val-2", ()))
    toy = Benchmark("toy", "Toy", 3, lambda folder: items)
    monkeypatch.setitem(BENCHMARKS, "toy", toy)
    scenes, missing = find_scenes(toy, tiny_pairs, tmp_path)
    assert missing == {"elsewhere": NO_MEDIA}
    assert [(scene.frame, scene.audio) for scene in scenes] == [
        ("frames/val-0.jpg", "sounds/val-0.flac"),
        ("frames/val-1.jpg", "sounds/val-2.flac"),
    ]
    assert find_scenes(toy, None, tmp_path)[1] == {}
