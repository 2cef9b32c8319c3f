"""The exception whose message is written for the user."""


class SoundspotError(Exception):
    """Bad input: one sentence that says what was expected, what was given and what to do.

    The command line prints the sentence and exits with code 2, without a traceback.
    """


def install_advice(extra: str) -> str:
    """How to get an optional dependency, in words for the end of a message."""
    return f"pip install 'soundspot[{extra}]', or in a clone pip install '.[{extra}]'"
