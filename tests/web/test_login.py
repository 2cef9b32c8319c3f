"""The password file, and who may listen where."""

import stat
from pathlib import Path

import pytest

from soundspot import cli
from soundspot.common.errors import SoundspotError
from soundspot.web import login, ports
from soundspot.web.login import read_login


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(login, "N", 2)


def test_a_password_is_asked_for_once_and_stored_hashed(tmp_path: Path):
    path, asked = tmp_path / "secret", []

    def ask(question: str) -> str:
        asked.append(question)
        return "correct horse"

    first = read_login(f"anna:{path}", ask)
    assert asked == ["New password for anna: ", "Repeat it: "]
    assert "horse" not in path.read_text() and stat.S_IMODE(path.stat().st_mode) == 0o600
    again = read_login(f"anna:{path}")  # nobody to ask, nothing to ask
    assert (again.user, again.salt, again.digest) == ("anna", first.salt, first.digest)
    other = read_login(f"anna:{tmp_path / 'other'}", ask)
    assert other.digest != first.digest  # salted
    assert "horse" not in repr(first)


def test_bad_password_files_are_refused(tmp_path: Path):
    path = tmp_path / "secret"
    with pytest.raises(SoundspotError, match="no password file .*secret: run the command once"):
        read_login(f"anna:{path}")
    with pytest.raises(SoundspotError, match="at least 8 characters"):
        read_login(f"anna:{path}", lambda _: "short")
    answers = iter(["correct horse", "battery staple"])
    with pytest.raises(SoundspotError, match="the two passwords differ"):
        read_login(f"anna:{path}", lambda _: next(answers))
    assert not path.exists()
    for text in ("correct horse", "", "scrypt 00 11", "scrypt zz " + "0" * 128, "md5 00 00"):
        path.write_text(text)
        with pytest.raises(SoundspotError, match="secret is not a password file of soundspot"):
            read_login(f"anna:{path}")
    for auth in ("anna", ":file", "anna:", ""):
        with pytest.raises(SoundspotError, match="expected --auth USER:FILE"):
            read_login(auth)


def test_a_public_address_needs_a_login(capsys, tmp_path: Path):
    for host in ("0.0.0.0", "::", "192.0.2.7", "no-such-host.invalid"):
        assert cli.main(["serve", "--host", host, "--port", "0"]) == 2
        assert f"with --host {host} other computers can reach the page" in capsys.readouterr().err
        ports.check_access(host, has_login=True, everybody=False)
        ports.check_access(host, has_login=False, everybody=True)
    for host in ("127.0.0.1", "127.0.0.9", "::1", "localhost"):
        ports.check_access(host, has_login=False, everybody=False)
    assert cli.main(["serve", "--auth", "a:b", "--no-auth", "--port", "0"]) == 2
    assert "--auth and --no-auth exclude each other" in capsys.readouterr().err
    assert cli.main(["serve", "--auth", f"a:{tmp_path / 'none'}", "--port", "65535"]) == 2
    assert "there is no password file" in capsys.readouterr().err
