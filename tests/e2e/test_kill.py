"""Real processes, killed with SIGKILL at random moments of their turns; the same proof that `make bench` runs longer."""

from pathlib import Path

from bench.kills import run_kills

KILLS = 80


def test_killed_at_random_moments_nothing_is_lost_and_nothing_happens_twice(tmp_path: Path) -> None:
    report = run_kills(KILLS, 20260301, tmp_path)
    assert report.faults == ()
    assert (report.lost, report.duplicates, report.unreadable, report.unfinished) == (0, 0, 0, 0)
    assert report.kills == KILLS
    assert report.acknowledged > KILLS and report.effects > KILLS, "there was something to lose"
