from soundspot.inference.result import UNNAMED, heard_line


def test_captions_name_only_what_is_probably_heard():
    assert heard_line([("Speech", 0.81), ("Rapping", 0.01), ("Music", 0.01)]) == "heard: Speech"
    assert heard_line([("Dog", 0.9), ("Bark", 0.8), ("Animal", 0.7), ("Pet", 0.6)]) == (
        "heard: Dog, Bark, Animal"
    )
    assert heard_line([("Speech", 0.05)]) == f"heard: {UNNAMED}"
    assert heard_line([]) == ""
