"""The generator of `make mutants`: what it changes, and that it tells what survives."""

from pathlib import Path

from made_files import load_script

mutants = load_script(Path(__file__).parents[1] / ".ci" / "mutants.py")

MODULE = '''
def share(a: float = 5, b: "x y" = None) -> float:
    """Says 1 + 1."""
    if a < 3 and not b:
        raise ValueError(f"{a + 1} < 3")
    return a.item() / divide(a, b)
'''


def test_what_is_changed():
    made = list(mutants.mutations(MODULE))
    assert [f"{line}: {change}" for line, change, _ in made] == [
        "2: 5  ->  6",
        "2: 5  ->  4",
        "4: a < 3 and (not b)  ->  a < 3 or not b",
        "4: a < 3 and (not b)  ->  a < 3",
        "4: a < 3 and (not b)  ->  not b",
        "4: a < 3  ->  a <= 3",
        "4: 3  ->  4",
        "4: 3  ->  2",
        "4: not b  ->  b",
        "6: a.item() / divide(a, b)  ->  a.item() * divide(a, b)",
        "6: a.item() / divide(a, b)  ->  a.item()",
        "6: a.item()  ->  a",
        "6: divide(a, b)  ->  divide(b, a)",
    ]
    sources = {source for _, _, source in made}
    assert len(sources) == len(made)
    assert all("b: 'x y'=None" in source and "a + 1" in source for source in sources)


def test_the_tests_of_a_file():
    assert mutants.mirrored_tests("soundspot/model/pcm.py") == "tests/model/test_pcm.py"
    assert mutants.mirrored_tests("soundspot/model/methods/dmc.py") == "tests/model/test_dmc.py"
    assert mutants.mirrored_tests("soundspot/model/nothing_of_that_name.py") == "tests/model"
    assert mutants.mirrored_tests("soundspot/nothing/of_that_name.py") == "tests"
