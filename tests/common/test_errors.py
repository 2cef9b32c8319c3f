"""Errors carry a code that outlives their wording, out of another process too."""

import pickle

import pytest

from soundspot.common.errors import CODES, BusyError, ConfigError, MediaError, SoundspotError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SoundspotError("x"), "bad-input"),
        (SoundspotError("x", "exists"), "exists"),
        (MediaError("x"), "unreadable"),
        (MediaError("x", "no-sound"), "no-sound"),
        (ConfigError("x"), "bad-config"),
        (BusyError("x"), "busy"),
    ],
)
def test_an_error_has_a_sentence_and_a_code_also_after_pickling(error, code):
    assert code in CODES
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert (type(copy), str(copy), copy.code) == (type(error), "x", code)
