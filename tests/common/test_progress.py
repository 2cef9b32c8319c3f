from soundspot.common.progress import ProgressLines


def test_lines_come_rarely_and_estimate_from_the_speed_since_the_last():
    now = [0.0]
    lines = ProgressLines("encoding", 1000, clock=lambda: now[0])
    assert lines.advance(400) is None  # done in an earlier run, in no time
    now[0] = 9.0
    assert lines.advance(0) is None
    now[0] = 12.0
    assert lines.advance(20) == "encoding: 420 of 1,000, about 17 s left"
    now[0] = 40.0
    assert lines.advance(1) is None
    now[0] = 112.0
    assert lines.advance(79) == "encoding: 500 of 1,000, about 10 min left"
