"""Check, build and try a release; uploads nothing. See "Releasing" in CONTRIBUTING.md."""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def read_version() -> str:
    """The version, which is written in soundspot/__init__.py and nowhere else in the code."""
    text = (ROOT / "soundspot" / "__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.M)
    return str(version)


def problems(version: str, citation: str, changelog: str, git: str) -> list[str]:
    """What keeps a version from being released."""
    found = []
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        found.append(f"the version {version} is not of the form 1.2.3")
    if f"\nversion: {version}\n" not in citation:
        found.append(f"CITATION.cff does not have version {version}")
    newest = re.findall(r"^## (.+)$", changelog, re.M)[0]
    if not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", newest):
        found.append(f'the newest section of CHANGELOG.md is "{newest}", not [{version}] - DATE')
    if git:
        found.append("there are changes that are not committed")
    return found


def run(*command: str | Path, **options: object) -> None:
    """Run a command, shown, and stop if it fails."""
    print("$", *command, flush=True)
    subprocess.run(command, check=True, cwd=ROOT, **options)


def build(folder: Path) -> Path:
    """Build sdist and wheel; the wheel is made from the sdist, so that this is checked too."""
    for old in folder.glob("soundspot-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", folder, ".")
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_wheel(wheel: Path) -> None:
    """Install the wheel in an empty environment, far from the sources, and use it."""
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        venv.create(place / "env", with_pip=True)
        python = place / "env" / "bin" / "python"
        began = time.monotonic()
        run(python, "-m", "pip", "install", "--quiet", wheel, "--constraint", "constraints.txt")
        print(f"installed in {time.monotonic() - began:.0f} s, {megabytes(place / 'env'):.0f} MB:")
        run(python, "-m", "pip", "list", "--format", "freeze")
        outside = {**os.environ, "PYTHONPATH": ""}
        for words in (["--version"], ["recipes"], ["demo", "-o", str(place / "out")]):
            command = [str(python), "-m", "soundspot", *words]
            print("$ soundspot", *words, flush=True)
            subprocess.run(command, check=True, cwd=place, env=outside)


def megabytes(folder: Path) -> float:
    """The size of a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def main() -> int:
    """Check, build, try."""
    version = read_version()
    git = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md")]
    if found := problems(version, *texts, git):
        for problem in found:
            print(f"not ready: {problem}", file=sys.stderr)
        return 1
    run(sys.executable, "page/build.py")  # the wheel carries the page
    wheel = build(ROOT / "dist")
    try_wheel(wheel)
    print(f"ready: {wheel}; next: git tag v{version} && git push --tags, then upload dist/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
