"""The one exception whose message is written for the person at the keyboard."""


class SoundspotError(Exception):
    """Bad input: one sentence that says what was expected, what came and what to do.

    The command line prints the sentence and exits with code 2; it never shows a traceback for it.
    """
