"""A soak runs what it says, with seeds that are new, and its page says how to see a find again."""

from __future__ import annotations

import time

import pytest

from tests.soak import Part, Soak, page_of, run_part


def test_the_page_counts_what_ran_and_names_what_broke() -> None:
    soak = Soak(0.0, 8.0, "abc1234")
    soak.parts = [
        Part("simulator", 100, {"seeds": 50, "commits": 7, "violations": 0}, 60.0, "python -m tests.simulator --seeds 50 --first 100"),
        Part("simulator", 150, {"seeds": 50, "commits": 3, "violations": 0}, 60.0, "python -m tests.simulator --seeds 50 --first 150"),
        Part("chaos", 42, {"seed": 42, "seconds": 60.0, "committed": 9}, 120.0, "python -m tests.chaos --minutes 1.00 --seed 42"),
    ]
    page = page_of(soak)
    assert "No promise was broken, in 0.07 of 8 hours." in page
    assert "| simulator | 2 | 2.0 | 100 to 199 | commits 10, violations 0 |" in page
    assert "| chaos | 1 | 2.0 | 42 | committed 9 |" in page
    soak.parts.append(Part("chaos", 43, {"seed": 43}, 60.0, "python -m tests.chaos --minutes 1.00 --seed 43", "I1: given twice"))
    page = page_of(soak)
    assert "**1 parts broke a promise or failed**" in page
    assert "## chaos, seed 43\n\nRun it again:\n\n```sh\npython -m tests.chaos --minutes 1.00 --seed 43\n```" in page
    assert "I1: given twice" in page


@pytest.mark.costly
def test_a_part_is_run_and_one_that_fails_is_kept_with_what_it_said() -> None:
    done = run_part("simulator", 5, "--seeds", "1", "--first", "5")
    assert (done.broken, done.facts["seeds"], done.facts["violations"]) == ("", 1, 0)
    failed = run_part("nothing", 5)
    assert "No module named tests.nothing" in failed.broken


def test_seeds_go_on_from_turn_to_turn_and_begin_anew_with_each_soak(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, int]] = []

    def run(kind: str, seed: int, *_: str) -> Part:
        ran.append((kind, seed))
        time.sleep(0.02)
        return Part(kind, seed, {"seeds": 100}, 0.0, "")

    monkeypatch.setattr("tests.soak.run_part", run)
    for _ in range(2):
        soak = Soak(time.time(), 0.1 / 3600, "")
        assert len(list(soak.run(1))) == len(soak.parts)
        assert {each.kind for each in soak.parts} == {"simulator", "chaos"}
    seeds = [seed for kind, seed in ran if kind == "simulator"]
    assert len(seeds) == len(set(seeds)) >= 4
