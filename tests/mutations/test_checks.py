"""What becomes of a construct whose check is switched off."""

from __future__ import annotations

import pytest

from .checks import Points

SOURCE = '''
def decided(queue, head):
    # check: empty
    if not queue:
        return None
    # check: newest (always)
    elif queue[-1] == head:
        return queue
    try:
        # check: sorted (sorted -> list)
        for slot in sorted(queue, key=len):
            # check: guarded
            require(slot)
    # check: trouble
    except (ValueError, KeyError) as trouble:
        raise
    # check: opened
    with opened(queue) as held, \\
            lock:
        held.look()
    return (
        queue[0]
        # check: first
        and queue[0] != head
        # check: length (without - 1)
        and len(queue) - 1 < limit(
            queue,
            # check: limit
            most=3,
        )
    )


# check: rule
@registered
def rule(at):
    """What it asks."""
    if at:
        return "said"
    return None


# check: order (after the next)
first = asked()
# a comment between them
# check: pair
# check: order-of-two (a() or b() -> b() or a())
second = [a() or  b(), "é", a]
'''
POINTS = Points(SOURCE)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("empty", "if not queue:", "if False:"),
        ("newest", "elif queue[-1] == head:", "elif True:"),
        ("sorted", "in sorted(queue, key=len)", "in list(queue, key=len)"),
        ("guarded", "require(slot)", "pass"),
        ("trouble", "except (ValueError, KeyError) as trouble:", "except () as trouble:"),
        ("opened", "with opened(queue) as held, \\\n            lock:", "if True:"),
        ("first", "and queue[0] != head", "and True"),
        ("length", "len(queue) - 1 <", "len(queue)  <"),
        ("limit", "            most=3,\n", "            \n"),
        ("rule", '"""What it asks."""\n    if at:\n        return "said"\n    return None', "return None"),
        ("pair", 'second = [a() or  b(), "é", a]', "pass"),
        ("order-of-two", "a() or  b()", "b() or a()"),
    ],
)
def test_a_construct(name: str, before: str, after: str) -> None:
    assert SOURCE.count(before) == 1
    assert POINTS.without(name) == SOURCE.replace(before, after)


def test_statements_change_places() -> None:
    changed = POINTS.without("order")
    assert changed.index("second =") < changed.index("first =")


def test_operands_change_places() -> None:
    assert (
        Points("# check: a\nx = (\n    # check: b (after the next)\n    f(1)\n    or g(2)\n)\n")
        .without("b")
        .endswith("    g(2)\n    or f(1)\n)\n")
    )


def test_points_with_one_name_are_switched_off_together() -> None:
    assert Points("# check: a\nf()\n# check: a\ng()\n").without("a") == "# check: a\npass\n# check: a\npass\n"


def test_a_module_says_which_checks_it_makes() -> None:
    assert {"empty", "order-of-two", "rule"} < POINTS.names
    assert Points("# check whether\nx = 1  # checks nothing\n").names == frozenset()


@pytest.mark.parametrize("comment", ["# check: Name", "#check: name", "# check: a-", "# check: a: b", "# check: a ()"])
def test_what_looks_like_a_check_point_is_one(comment: str) -> None:
    with pytest.raises(ValueError, match="is no check point"):
        Points(f"{comment}\nf()\n")
    with pytest.raises(ValueError, match="is no check point"):
        Points("f()  # check: a\ng()\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# check: a (b -> c)\nf(b, b)\n", "2 times"),
        ("# check: a (b -> c)\nf(bb)\n", "0 times"),
        ("# check: a (b)\nf(b)\n", "says nothing"),
        ("# check: a (always)\nf(b)\n", "for conditions"),
        ("# check: a (after the next)\nf(b)\n", "nothing follows"),
        ("if x:\n    # check: a\n    pass\nelse:\n    y = {\n        # check: b\n        1: 2,\n    }\n", "nothing that can be"),
    ],
)
def test_a_point_that_switches_nothing_off(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Points(text).without("b" if "check: b" in text else "a")


def test_a_piece_of_a_compound_statement_is_one_of_its_head() -> None:
    assert Points("# check: a (b -> c)\nif b:\n    b()\n").without("a") == "# check: a (b -> c)\nif c:\n    b()\n"
