"""The checks before a release, and the version in its other places."""

from pathlib import Path

import soundspot
from made_files import load_script

ROOT = Path(__file__).parents[1]
CITATION = "title: x\nversion: 1.2.3\nauthors: y\n"
CHANGELOG = "# Changelog\n\n## [1.2.3] - 2026-11-16\n\n## [1.2.2] - 2026-01-01\n"


def release():
    return load_script(ROOT / ".ci" / "release.py")


def test_the_version_is_the_same_everywhere():
    assert release().read_version() == soundspot.__version__
    assert f"\nversion: {soundspot.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_what_keeps_a_version_from_being_released():
    problems = release().problems
    assert problems("1.2.3", CITATION, CHANGELOG, "") == []
    assert problems("1.2.3.dev0", CITATION.replace("3", "3.dev0"), CHANGELOG, "")
    assert len(problems("1.2.3", "version: 1.2.2\n", CHANGELOG, "")) == 1
    assert len(problems("1.2.3", CITATION, "## [Unreleased]\n" + CHANGELOG, "")) == 1
    assert len(problems("1.2.3", CITATION, CHANGELOG, " M README.md\n")) == 1


def test_the_wheel_has_the_recipes():
    assert 'recipes = "soundspot/recipes"' in (ROOT / "pyproject.toml").read_text()
