"""The console in a real browser: what a person sees, by mouse and by keys, light and dark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sluice
from sluice.operating.console.application import Console, serve
from sluice.operating.console.watcher import Watcher
from sluice.operating.document import Coordinator, Status
from sluice.operating.document import Table as TableStatus
from tests.browser import Browser, find_browser

from .scenes import refused, undecided

PROGRAM = find_browser()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed: apt-get install chromium, or name one in CHROMIUM"),
]
SCHEMA = pa.schema([("region", pa.string()), ("id", pa.int64())])
ROWS = pa.table({"region": ["north", "south"], "id": [1, 2]}, SCHEMA)
TOKEN = "a-token-of-32-characters-for-test"
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"

STOPPED = """
import os, signal, sys
import pyarrow as pa, sluice
from sluice.coordinator.commit import queue
def point(name):
    if name == "after-claim":
        print("filed", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
queue.point = point
table = sluice.Table.open(sys.argv[1], coordinator=sys.argv[2], application="nightly-load")
table.coordinated.alone = False
table.append(pa.table({"region": ["east"], "id": [3]}))
"""

CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (color) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const ratio = (one, other) => { const [a, b] = [light(one), light(other)].sort((x, y) => y - x); return (a + 0.05) / (b + 0.05); };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; }
    throw new Error("nothing is behind the text"); };
  const poor = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility() || element.closest("title, noscript, .unseen")) continue;
    const style = getComputedStyle(element);
    const under = element.closest(".part")?.querySelector("rect");
    const against = under ? rgb(getComputedStyle(under).fill) : ground(element);
    const value = ratio(rgb(element instanceof SVGElement ? style.fill : style.color), against);
    count += 1;
    if (value < 4.5) poor.push(`${element.className.baseVal ?? element.className} "${walk.currentNode.data}": ${value.toFixed(2)}`);
  }
  for (const shape of document.querySelectorAll(".bar-item .wait, .bar-item .done")) {
    const value = ratio(rgb(getComputedStyle(shape).fill), ground(shape.closest("div")));
    count += 1;
    if (value < 3) poor.push(`${shape.parentElement.className.baseVal}: ${value.toFixed(2)}`);
  }
  return {count, poor};
})()"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """A browser in whose page nothing went wrong."""
    window.problems.clear()
    window.media(prefers_color_scheme="light")
    window.size(1280, 860)
    yield window
    window.open("about:blank")
    assert [each for each in window.problems if "ERR_" not in each and "401" not in each] == [], "these two are tried on purpose"


@contextmanager
def served(coordinator: str, port: int = 0, **terms: Any) -> Iterator[tuple[str, int]]:
    port, end = serve(Console.of(coordinator, **terms), "127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{port}/", port
    finally:
        end()


@pytest.fixture
def coordinator() -> str:
    return f"memory://{uuid.uuid4().hex}"


def make(coordinator: str, where: Path, **terms: Any) -> sluice.Table:
    made = sluice.Table.create(where, SCHEMA, partition_by=["region"], coordinator=coordinator, application="loader", **terms)
    made.append(ROWS)
    return made


@pytest.fixture
def table(coordinator: str, tmp_path: Path) -> sluice.Table:
    return make(coordinator, tmp_path / "orders")


def page_of(url: str, table: sluice.Table) -> str:
    return f"{url}#/table/{urllib.parse.quote(table.location, safe='')}"


def text(browser: Browser, selector: str) -> str:
    return str(browser.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))


@pytest.mark.zookeeper
def test_the_first_screen_names_a_stopped_client_whose_transaction_holds_up_the_queue(
    browser: Browser, zookeeper_address: str, tmp_path: Path
) -> None:
    table = make(zookeeper_address, tmp_path / "orders")
    command = [sys.executable, "-c", STOPPED, table.location, zookeeper_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stopped, served(zookeeper_address) as (url, _):
        try:
            assert stopped.stdout is not None
            assert stopped.stdout.readline() == b"filed\n"
            browser.open(url)
            browser.until("document.querySelector('section[aria-label=\"Who waits\"] tbody')?.innerText.includes('nightly-load')")
            row = text(browser, 'section[aria-label="Who waits"] tbody')
            assert "orders" in row
            assert f"process {stopped.pid}" in row
            browser.until("document.querySelector('h1').innerText === 'orders is held up by a client'", 30)
            assert "nobody: it is first, and no client decides it" in text(browser, 'section[aria-label="Who waits"] tbody')
            assert "look for stopped processes" in text(browser, ".messages")
        finally:
            os.kill(stopped.pid, signal.SIGKILL)


def test_a_page_that_is_hidden_keeps_no_connection_for_the_others_to_lack(browser: Browser, coordinator: str) -> None:
    turn = """(hidden => { Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
        document.dispatchEvent(new Event("visibilitychange")) })"""
    console = Console.of(coordinator)
    port, end = serve(console, "127.0.0.1", 0)
    try:
        browser.open(f"http://127.0.0.1:{port}/")
        for hidden, streams in ((False, 1), (True, 0), (False, 1)):
            browser.run(f"{turn}({json.dumps(hidden)})")
            deadline = time.monotonic() + 20
            while len(console.watcher._wakers) != streams:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        browser.until("document.getElementById('live').dataset.state === 'live'")
    finally:
        end()


def test_a_page_whose_settings_come_late_waits_for_nothing_but_its_buttons(
    browser: Browser, coordinator: str, table: sluice.Table, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    late = """const soon = fetch; let refused = 0; fetch = async (...each) => {
      if (each[0] !== "/api/settings" || globalThis.allowed) return soon(...each);
      globalThis.refused = ++refused; throw new TypeError("no answer") }"""
    with served(coordinator, token_file=token_file) as (url, _), browser.beginning(late):
        browser.open(page_of(url, table))
        browser.run("document.dispatchEvent(new Event('visibilitychange'))")
        browser.until("document.getElementById('live').dataset.state === 'live'")
        browser.until("globalThis.refused > 1")
        assert browser.run("document.getElementById('compact')") is None
        browser.run("globalThis.allowed = true")
        browser.until("document.getElementById('compact')")


def test_a_refused_bar_is_red_and_a_click_shows_rule_winner_and_remedy(browser: Browser, coordinator: str, table: sluice.Table) -> None:
    refused(table, ROWS)
    with served(coordinator) as (url, _):
        browser.open(page_of(url, table))
        browser.until("document.querySelector('.bar-item.refused')")
        fill = browser.run("getComputedStyle(document.querySelector('.bar-item.refused .wait')).fill")
        assert fill == "rgb(208, 52, 43)"
        browser.click(".bar-item.refused .hit")
        shown = browser.until("document.querySelector('.detail')?.innerText")
        for each in ("Refused", "appended-what-i-read", "Lost to", "loader WRITE, version 2", "What avoids it", "repeat the operation"):
            assert each in shown
        browser.run("[...document.querySelectorAll('.detail button')].find((each) => each.innerText === 'show it').click()")
        assert text(browser, ".detail h3").startswith("Version 2")
        assert browser.run("document.querySelectorAll('.bar-item.selected').length") == 1


def test_the_lanes_can_be_walked_by_keys(browser: Browser, coordinator: str, table: sluice.Table) -> None:
    for _ in range(3):
        table.append(ROWS)
        time.sleep(0.1)
    with served(coordinator) as (url, _):
        browser.open(page_of(url, table))
        browser.until("document.querySelectorAll('.bar-item').length === 5")
        assert browser.run("document.querySelectorAll('.bar-item[tabindex=\"0\"]').length") == 1, "the time line is one stop of Tab"
        browser.run("document.querySelector('.bar-item[tabindex=\"0\"]').focus()")
        browser.press("ArrowLeft")
        browser.press("ArrowLeft")
        browser.press("Enter")
        assert text(browser, ".detail h3").startswith("Version 2")
        browser.press("ArrowRight")
        browser.press(" ")
        assert text(browser, ".detail h3").startswith("Version 3")
        time.sleep(2.5)
        assert browser.run("document.activeElement.classList.contains('bar-item')"), "a new document leaves the focus where it is"


def test_the_page_can_be_used_by_keys_alone(browser: Browser, coordinator: str, table: sluice.Table) -> None:
    with served(coordinator) as (url, _):
        browser.open(url)
        browser.until("document.querySelector('#tables tbody tr')")
        browser.press("Tab")
        assert browser.run("document.activeElement.id") == "skip"
        browser.press("Enter")
        assert browser.run("document.activeElement.id") == "main"
        browser.press("/")
        assert browser.run("document.activeElement.id") == "filter"
        for key in "zz":
            browser.press(key)
        browser.until("document.querySelectorAll('#tables tbody tr').length === 0")
        assert "No table matches" in text(browser, "main")
        browser.run("document.querySelector('#filter').select()")
        for key in "ord":
            browser.press(key)
        browser.until("document.querySelectorAll('#tables tbody tr').length === 1")
        browser.run("document.querySelector('#tables tbody a').focus()")
        browser.press("Enter")
        browser.until("document.querySelector('[role=tab]')")
        browser.run("document.querySelector('[role=tab]').focus()")
        for name in ("History", "Schema", "Files", "Now"):
            browser.press("ArrowRight")
            assert browser.run("document.querySelector('[aria-selected=true]').innerText") == name
            assert browser.run("document.activeElement.innerText") == name


@pytest.mark.costly
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(browser: Browser, coordinator: str, table: sluice.Table, scheme: str) -> None:
    refused(table, ROWS)
    undecided(table, ROWS)
    browser.media(prefers_color_scheme=scheme)
    counts = []
    with served(coordinator) as (url, _), table.lease("shared", name="repair"):
        for address, script in (
            (url, "document.querySelector('#tables tbody tr')"),
            (f"{url}#/ensemble", "document.querySelector('h1')"),
            (page_of(url, table), "document.querySelector('.bar-item.refused')"),
        ):
            browser.open("about:blank")
            browser.open(address)
            browser.until(script)
            if address.endswith("orders"):
                browser.click(".bar-item.refused .hit")
            for tab in ("now", "history", "schema", "files") if "table" in address else ("",):
                if tab:
                    browser.click(f"#tab-{tab}")
                    time.sleep(0.5)
                contrasts = browser.run(CONTRAST)
                assert contrasts["poor"] == [], (address, tab)
                counts.append(contrasts["count"])
    assert min(counts) > 10
    assert (
        browser.run("getComputedStyle(document.body).backgroundColor") == {"light": "rgb(255, 255, 255)", "dark": "rgb(19, 24, 29)"}[scheme]
    )


def test_names_with_markup_are_shown_as_text(browser: Browser, coordinator: str, tmp_path: Path) -> None:
    folder = tmp_path / "<b>bold<b>"
    table = sluice.Table.create(
        folder,
        pa.schema([(MARKUP, pa.string())]),
        properties={"note": MARKUP, "delta.columnMapping.mode": "name"},
        coordinator=coordinator,
        application=MARKUP,
    )
    with table.lease("shared", name=MARKUP[:100]):
        table.append(pa.table({MARKUP: ["x"]}))
        undecided(table, pa.table({MARKUP: ["y"]}))
        with served(coordinator) as (url, _):
            browser.open(url)
            browser.until("document.querySelector('#tables tbody tr')")
            browser.until("document.querySelector('section[aria-label=\"Who waits\"] tbody')?.innerText.includes('onerror')")
            assert "<b>bold<b>" in text(browser, "#tables tbody")
            browser.open(page_of(url, table))
            browser.until("document.querySelector('.bar-item')")
            assert MARKUP in text(browser, 'section[aria-label="Queue"]')
            for tab in ("history", "schema"):
                browser.click(f"#tab-{tab}")
                assert MARKUP in browser.until("document.querySelector('#panel').innerText")
            assert browser.run("document.querySelectorAll('main img, main script, main b').length") == 0


def test_a_page_goes_on_when_the_console_was_started_again(browser: Browser, coordinator: str, table: sluice.Table) -> None:
    with served(coordinator) as (url, port):
        browser.open(url)
        browser.until("document.querySelector('#live').dataset.state === 'live'")
        cell = "document.querySelector('#tables tbody td:nth-of-type(2)').innerText"
        assert browser.until(cell) == "1"
    browser.until("document.querySelector('#live').innerText === 'the console does not answer; trying again'")
    table.append(ROWS)
    with served(coordinator, port):
        browser.until(f"{cell} === '2'")
        assert text(browser, "#live").startswith("live")


@pytest.mark.costly
def test_an_action_is_asked_for_and_its_result_is_said(browser: Browser, coordinator: str, table: sluice.Table, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    for _ in range(2):
        table.append(ROWS)
    with served(coordinator, token_file=token) as (url, _):
        browser.open(page_of(url, table))
        browser.until("document.querySelector('#compact')")
        for given, answer in (("wrong", "the token is missing, or is not the one"), (TOKEN, "compacted in version 4")):
            browser.click("#compact")
            assert browser.run("document.querySelector('dialog').open")
            browser.run(f"document.querySelector('#by').value = 'eve'; document.querySelector('#token').value = {json.dumps(given)}")
            browser.click("dialog .primary")
            browser.until(f"document.querySelector('#toast').innerText.includes({json.dumps(answer)})")
    with served(coordinator) as (url, _):
        browser.open(page_of(url, table))
        browser.until("document.querySelector('.bar-item')")
        assert browser.run("document.querySelectorAll('#compact, #dry-vacuum').length") == 0


def test_a_click_is_not_lost_when_the_page_is_drawn_anew(browser: Browser, coordinator: str, table: sluice.Table) -> None:
    refused(table, ROWS)
    with served(coordinator) as (url, _):
        browser.open(page_of(url, table))
        browser.until("document.querySelector('[id^=refused-]')")
        browser.run("document.querySelector('[id^=refused-]').scrollIntoView({block: 'center'})")
        browser.mouse("mousePressed", "[id^=refused-]")
        time.sleep(3)
        browser.mouse("mouseReleased", "[id^=refused-]")
        browser.until("document.querySelector('.detail h3')?.innerText.startsWith('Refused')", 3)


def test_three_hundred_tables_are_quick(browser: Browser) -> None:
    seen = threading.Event()

    def look() -> Status:
        seen.set()
        number = time.monotonic_ns() // 1000
        tables = tuple(
            TableStatus(
                location=f"s3://lake/table-{n:03}", name=f"shop.table_{n:03}", version=number + n, commits_per_s=n / 10, window_s=60
            )
            for n in range(300)
        )
        coordinator = Coordinator(
            address="zk://a:2181/sluice",
            write_s=0.002,
            trouble=None,
            servers=(),
            may_stop_before_commits_do=1,
            may_be_lost_before_data_are=1,
            clients={"1": 50},
        )
        return Status(at="2026-11-28T10:00:00.000Z", ok=True, coordinator=coordinator, tables=tables, limited_by="workload", messages=())

    console = Console.of("memory://many")
    console.watcher.close()
    object.__setattr__(console, "watcher", Watcher(look, every_s=0.2))
    port, end = serve(console, "127.0.0.1", 0)
    try:
        browser.open(f"http://127.0.0.1:{port}/")
        browser.until("document.querySelectorAll('#tables tbody tr').length === 300")
        browser.run("""window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((each) => each.duration)))
            .observe({type: "longtask"}); window.rows = [...document.querySelectorAll('#tables tbody tr')]""")
        before = text(browser, "#tables tbody tr td:nth-of-type(2)")
        time.sleep(3)
        assert text(browser, "#tables tbody tr td:nth-of-type(2)") != before
        tasks = sorted(browser.run("tasks"))
        print("long tasks in ms:", tasks)
        assert not tasks or tasks[len(tasks) // 2] < 300, f"in so many milliseconds the page does not answer: {tasks}"
        assert browser.run("rows.every((row) => row.isConnected)"), "rows are kept"
        took = browser.run("""(() => { const began = performance.now(); document.querySelector('#sort-rate').click();
            document.body.offsetHeight; return performance.now() - began })()""")
        assert took < 400
        assert browser.run("document.querySelector('#tables tbody tr a').innerText") == "shop.table_299"
        assert browser.run("document.querySelector('th[aria-sort]').innerText") == "Commits/s"
        browser.click("#sort-rate")
        assert browser.run("document.querySelector('#tables tbody tr a').innerText") == "shop.table_000"
    finally:
        end()
