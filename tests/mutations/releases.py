"""Two releases side by side: what is recorded of a rendering, and what a release does that does not know a record."""

from __future__ import annotations

from typing import Final

from .mutation import COORDINATOR, SEEDS, Mutation, edit

__all__ = ["MUTATIONS"]

_FORMATS = "tests/coordinator/test_formats.py::"
_QUEUED = f"{COORDINATOR}commit/queue.py"

MUTATIONS: Final = (
    Mutation(
        "engine-is-recorded",
        "I5",
        "whoever publishes signs a version with the name of its own release, not with the recorded one",
        edit(f"{COORDINATOR}commit/rendering.py", '"engineInfo": by.engine,', '"engineInfo": Rendering(0).engine,'),
        tests=(f"{_FORMATS}test_whoever_publishes_signs_with_the_name_of_who_ratified",),
        seeds=SEEDS,
    ),
    Mutation(
        "unknown-renderings-wait",
        "I5",
        "a release renders versions by a number that it does not know",
        edit(
            f"{COORDINATOR}commit/ratified_log.py",
            '        require_number(by.number, context.release.rendering, f"the rendering of version {plan.version} by {by.engine}")\n',
            "",
        ),
        tests=(f"{_FORMATS}test_a_rendering_that_is_not_known_is_waited_for",),
        seeds=SEEDS,
    ),
    Mutation(
        "unknown-formats-wait",
        "I4",
        "a release goes on with records of a format that it does not know",
        edit(f"{COORDINATOR}formats.py", "    if number > known:\n", "    if number > known + 1_000_000:\n"),
        tests=(
            f"{_FORMATS}test_an_intent_of_a_newer_format_stops_older_clients_where_the_head_admits_it",
            f"{_FORMATS}test_a_head_that_is_not_known",
        ),
    ),
    Mutation(
        "unknown-formats-stop-nobody-before-them",
        "I8",
        "what stands in the queue before an intent of a newer format is not decided either",
        edit(_QUEUED, "            if not queue:\n                raise\n            break", "            raise"),
        tests=(f"{_FORMATS}test_an_intent_of_a_newer_format_stops_older_clients_where_the_head_admits_it",),
    ),
    Mutation(
        "formats-are-admitted",
        "I8",
        "a made-up format of an intent stops the queue for ever",
        edit(f"{COORDINATOR}nodes/records.py", "        if unknown.found <= head.intents:\n            raise\n", "        raise\n"),
        tests=(f"{_FORMATS}test_an_intent_of_a_format_that_nobody_files_is_refused",),
    ),
    Mutation(
        "formats-are-admitted-first",
        "I8",
        "an intent of a newer format is filed although the head does not say so, and is refused by older releases",
        edit(f"{COORDINATOR}commit/claims.py", "            head = admitting(context, head)\n", ""),
        tests=(f"{_FORMATS}test_who_files_a_newer_format_says_so_in_the_head_first",),
    ),
)
