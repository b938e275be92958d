"""The models of the commit protocol hold, and what checks them notices when they do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .check_model import Found, judge, main, missing_tools, unreached, verdict_of
from .runs import MUTATIONS, RUNS, Run

ROOT = Path(__file__).resolve().parents[2]
needs_spin = pytest.mark.skipif(
    bool(missing_tools()), reason=f"the model is checked with Spin and gcc: apt-get install {' '.join(missing_tools())}"
)

HOLDS = """
(Spin Version 6.5.2 -- 6 December 2019)
	+ Partial Order Reduction

State-vector 108 byte, depth reached 92, errors: 0
    50486 states, stored
    20580 states, matched
    71066 transitions (= stored+matched)
unreached in proctype Client
	/somewhere/table.pml:584, state 146, "D_STEP584"
	/somewhere/table.pml:936, state 16, "-end-"
	(2 of 1170 states)
unreached in init
	(0 of 11 states)

pan: elapsed time 0.14 seconds
"""

BROKEN = """pan:1: assertion violated ((at[t]==0)||(10==0)) (at depth 83)
pan: wrote table.pml.trail

Warning: Search not completed
State-vector 132 byte, depth reached 83, errors: 1
       70 states, stored
       70 transitions (= stored+matched)
"""

RUN = Run("one", "table", ("CLIENTS=1",))


def found(text: str) -> Found:
    return verdict_of(text, 1.0)


def test_numbers_are_read() -> None:
    it = found(HOLDS)
    assert (it.states, it.transitions, it.depth, it.broken, it.complete) == (50486, 71066, 92, "", True)
    assert judge(RUN, it) == ""


def test_an_error_is_noticed_and_named() -> None:
    it = found(BROKEN)
    assert it.invariant == "I10"
    assert not it.complete
    assert "I10" in judge(RUN, it)


def test_an_error_without_a_name_is_noticed() -> None:
    it = found(BROKEN.replace("assertion violated ((at[t]==0)||(10==0))", "invalid end state"))
    assert "invalid end state" in judge(RUN, it)


@pytest.mark.parametrize(
    "sign", ["error: max search depth too small", "pan: reached -DMEMLIM bound", "pan: out of memory", "Warning: Search not completed"]
)
def test_a_search_that_stops_early_is_no_result(sign: str) -> None:
    assert judge(RUN, found(f"{sign}\n{HOLDS}")) == "the search is not complete"


def test_no_output_is_no_result() -> None:
    assert judge(RUN, found("")) == "the search is not complete"


def test_what_is_broken_has_to_be_what_was_expected() -> None:
    mutation = Run("one", "table", (), breaks=("I10",))
    assert judge(mutation, found(BROKEN)) == ""
    assert judge(mutation, found(HOLDS)) == "nothing was found broken"
    assert "I10 is broken, not I7" in judge(Run("one", "table", (), breaks=("I7",)), found(BROKEN))


def test_statements_that_were_not_reached_are_read() -> None:
    assert unreached(HOLDS) == {"Client: table.pml:584 D_STEP584", "Client: table.pml:936 -end-"}


def test_runs_have_names_of_their_own() -> None:
    names = [run.name for run in (*RUNS, *MUTATIONS)]
    assert len(names) == len(set(names))
    assert len(MUTATIONS) >= 8
    assert all(run.breaks for run in MUTATIONS)


@pytest.mark.slow
@needs_spin
@pytest.mark.long
def test_small_runs_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["complete"]
    assert told["violations"] == 0
    assert told["states"] > 10_000


@needs_spin
def test_a_check_that_is_left_out_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mutations", "--only", "a lost multi counts as done"]) == 0
    assert "I5 broken" in capsys.readouterr().out


def test_without_spin_the_packages_are_named(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.promela.check_model", "--quick"]
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "apt-get install spin gcc" in done.stderr
