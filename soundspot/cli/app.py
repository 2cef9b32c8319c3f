"""The application and its exit codes: 0 done, 2 bad input or damaged files, 130 interrupted.

A verb imports what it needs when it runs, so `--help` is quick. Results go to standard output,
everything else to standard error.
"""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError
from cyclopts.exceptions import UnusedCliTokensError

from soundspot import __version__
from soundspot.cli.evaluate import audit, complexity, evaluate, reproduce
from soundspot.cli.localize import demo, localize, page, serve
from soundspot.cli.options import complain
from soundspot.cli.pairs import encode, pairs_app, weights_app
from soundspot.cli.prepare import prepare_app
from soundspot.cli.train import export, export_onnx, recipes, tidy, train
from soundspot.common.errors import SoundspotError
from soundspot.parallel.processes import calm_threads

app = App(
    name="soundspot",
    help="Find what is sounding in a picture.",
    version=f"soundspot {__version__}",
    help_format="markdown",  # unlike plain text, it joins the lines of a paragraph
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
for group in (pairs_app, prepare_app, weights_app):
    app.command(group)
for verb in (
    *(localize, demo, serve, page),
    *(encode, recipes, train, tidy, export, export_onnx),
    *(evaluate, audit, reproduce, complexity),
):
    app.command(verb)

# What the command line adds to errors of some codes.
ADVICE = {"no-weights": "; `soundspot weights add NAME FILE` takes a file that you have already"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; expected failures become one sentence."""
    calm_threads()
    try:
        code = app(arguments, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        verb = " ".join(["soundspot", *(error.command_chain or ())])
        return _fail(f"{_sentence(error)}; see `{verb} --help`")
    except SoundspotError as error:
        return _fail(f"{error}{ADVICE.get(error.code, '')}")
    except BrokenPipeError:
        # The reader is gone, as in `soundspot weights list | head -1`. Python flushes standard
        # output once more when it exits: give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    return code if isinstance(code, int) else 0


def _sentence(error: CycloptsError) -> str:
    """What is wrong with the arguments of a command, without the full stop."""
    if isinstance(error, UnusedCliTokensError):
        return f"too many arguments: {' '.join(error.unused_tokens or ())}"
    error.verbose = False
    sentence = " ".join(str(error).split())
    return sentence if sentence.endswith("...") else sentence.removesuffix(".")


def _fail(sentence: str, code: int = 2) -> int:
    complain(sentence)
    return code
