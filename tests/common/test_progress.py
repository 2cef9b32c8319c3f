from soundspot.common.progress import counting


def test_off_a_terminal_there_is_a_line_for_every_hundredth(capsys):
    with counting("encoding", 1009) as advance:
        for done in (0, 7, 3, 9, 1, 989):
            advance(done)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["19", "1,009"]
