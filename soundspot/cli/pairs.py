"""The verbs for pair sets, features and weights: pairs check, pairs pack, encode, weights."""

from pathlib import Path

from cyclopts import App

from soundspot.cli.options import Device, complain, say
from soundspot.encoders import weights
from soundspot.parallel.engines import EngineName

pairs_app = App(name="pairs", help="Check or pack a pair set.")


@pairs_app.command
def check(folder: Path, /) -> int:
    """List everything unreadable, missing, silent or in two splits; exit with code 2 if any.

    Args:
        folder: The pair set.
    """
    from soundspot.data.pair_set import PairSet, find_problems

    pairs = PairSet.open(folder)
    problems = 0
    for problem in find_problems(pairs):
        problems += 1
        say(f"{problem.kind:<10} {problem.item} {problem.reason}")
    counts = ", ".join(f"{split} {len(pairs.select(split))}" for split in pairs.splits())
    say(f"{pairs.name}: {counts}; {problems or 'no'} problem{'' if problems == 1 else 's'}")
    return 2 if problems else 0


@pairs_app.command(name="pack")
def pack_pairs(folder: Path, out: Path, /) -> None:
    """Copy a pair set into tar shards that WebDataset can read.

    Args:
        folder: The pair set.
        out: The new pair set.
    """
    from soundspot.data.pair_set import PairSet
    from soundspot.data.shards import pack

    packed = pack(PairSet.open(folder), out)
    say(f"{packed.root}: {len(packed.pairs)} pairs in {len(list(out.glob('*.tar')))} shards")


def encode(
    folder: Path,
    /,
    *settings: str,
    recipe: str | None = None,
    engine: EngineName = "local",
    jobs: int | None = None,
    device: Device = "auto",
) -> None:
    """Compute the frozen features of a pair set once, so that training takes minutes.

    It can be interrupted at any time: the same command resumes. Several processes share the work.

    Args:
        folder: The pair set.
        settings: Overrides such as features.views=4, or views=4 for short.
        recipe: Use the encoders and views of this recipe: a file, or the name of one that ships.
        engine: Run on this machine (local) or on a Ray cluster (ray).
        jobs: Number of processes. Default: one that uses all cores, or all that the cluster has.
    """
    from soundspot.data.pair_set import PairSet
    from soundspot.features.encoding import encode_with_bar
    from soundspot.parallel.engines import Engine
    from soundspot.training.recipe import find_recipe, read_features

    spec = read_features(None if recipe is None else find_recipe(recipe), settings)
    chosen = Engine(engine, 1 if engine == "local" and jobs is None else jobs)
    encode_with_bar(PairSet.open(folder), spec, say, chosen, device)


weights_app = App(name="weights", help="List, fetch, add and verify the pretrained encoders.")


@weights_app.command(name="list")
def list_weights() -> None:
    """List all names with their licenses and sources, and whether they are in the cache."""
    for entry, state, size in weights.list_entries():
        say(f"{entry.name:<20} {state}, {size / 1e6:.1f} MB: {entry.description}")
        for line in (f"license: {entry.license}", *entry.sources):
            say(f"    {line}")


@weights_app.command
def fetch(name: str, /) -> None:
    """Download weights into the cache and convert them, if it does not hold them undamaged.

    Args:
        name: A name from `soundspot weights list`.
    """
    say(str(weights.fetch(name)))


@weights_app.command
def add(name: str, file: Path, /) -> None:
    """Add a file that you downloaded to the cache, if it is the published one.

    Args:
        name: A name from `soundspot weights list`.
        file: The weights as published, or the archive that contains them.
    """
    say(str(weights.add(name, file)))


@weights_app.command
def verify() -> int:
    """Check every file in the cache; exit with code 2 if one is damaged."""
    exit_code = 0
    for entry, state, _ in weights.list_entries(verify=True):
        say(f"{entry.name:<20} {state}")
        if state == "damaged":
            exit_code = 2
            complain(f"repair it with `soundspot weights fetch {entry.name}`")
    return exit_code
