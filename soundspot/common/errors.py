"""The exception whose message is written for the user."""


class SoundspotError(Exception):
    """Bad input: one sentence that says what was expected, what was given and what to do.

    The command line prints the sentence and exits with code 2, without a traceback.
    """
