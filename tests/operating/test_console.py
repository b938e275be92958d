"""The console's application by HTTP: what it shows, to whom it answers, and what it does for a token."""

from __future__ import annotations

import http.client
import json
import logging
import os
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import sluice
from sluice.cli import main
from sluice.errors import InvalidRequest
from sluice.operating import document
from sluice.operating.console.application import Console, serve
from sluice.operating.console.guard import masked, read_token
from sluice.operating.console.watcher import Seen, Watcher
from sluice.operating.status import status

from .scenes import refused, undecided
from .schema import schema

SCHEMA = pa.schema([("region", pa.string()), ("id", pa.int64())])
ROWS = pa.table({"region": ["north", "south"], "id": [1, 2]}, SCHEMA)
TOKEN = "a-token-of-32-characters-for-test"
STATIC = Path(document.__file__).parent / "console" / "static"


@dataclass(frozen=True)
class Site:
    """A console that runs."""

    coordinator: str
    console: Console
    port: int

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, None if body is None else json.dumps(body), named)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def json(self, path: str, **query: str) -> Any:
        status, _, body = self.ask(f"{path}?{urllib.parse.urlencode(query)}")
        assert status == 200, body
        return json.loads(body)

    def act(self, name: str, table: sluice.Table, what: str = "", token: str = TOKEN, **headers: str) -> tuple[int, Any]:
        fields = {"location": table.location, "by": "eve", "what": what}
        status, _, body = self.ask(f"/api/actions/{name}", "POST", fields, X_Sluice_Token=token, **headers)
        return status, json.loads(body) if body.startswith(b"{") else body.decode()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


@pytest.fixture(params=[False])
def site(request: pytest.FixtureRequest, token_file: Path) -> Iterator[Site]:
    coordinator = f"memory://{uuid.uuid4().hex}"
    console = Console.of(coordinator, token_file=token_file if request.param else None)
    port, end = serve(console, "127.0.0.1", 0)
    yield Site(coordinator, console, port)
    end()


with_token = pytest.mark.parametrize("site", [True], indirect=True)


@pytest.fixture
def table(site: Site, tmp_path: Path) -> sluice.Table:
    properties = {"my.password": "hunter2", "my.note": "fine"}
    made = sluice.Table.create(
        tmp_path / "table", SCHEMA, partition_by=["region"], properties=properties, coordinator=site.coordinator, application="loader"
    )
    made.append(ROWS)
    return made


# -- what it shows ---------------------------------------------------------------------------------------------------------


def test_the_page_and_its_parts_are_served(site: Site) -> None:
    for path, kind in (("/", "text/html"), *((f"/static/{each.name}", None) for each in STATIC.iterdir())):
        code, headers, body = site.ask(path)
        assert code == 200
        assert len(body) > 50
        assert kind is None or headers["content-type"].startswith(kind)


@pytest.mark.parametrize(
    "name", ["..%2Fapplication.py", "../application.py", "%2e%2e/guard.py", "nothing.js", "__init__.py", "console.css%00"]
)
def test_nothing_else_is_served(site: Site, name: str) -> None:
    assert site.ask(f"/static/{name}")[0] == 404


def test_probes_say_whether_the_coordinator_is_reached(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [site.ask(path)[0] for path in ("/healthz", "/readyz")] == [200, 200]
    away = b'{"coordinator": {"trouble": "no server answers"}}'
    monkeypatch.setattr(site.console.watcher, "now", lambda: Seen(1, away))
    assert [site.ask(path)[0] for path in ("/healthz", "/readyz")] == [200, 503]


def test_tables_that_cannot_be_read_block_neither_the_probe_nor_the_status(
    site: Site, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr("sluice.operating.console.table_page.open_store", lambda *_: answers.wait(60))
    path = f"/api/table?location={urllib.parse.quote(table.location)}"
    readers = [threading.Thread(target=site.ask, args=(path,)) for _ in range(45)]
    for each in readers:
        each.start()
    time.sleep(0.5)
    began = time.monotonic()
    assert [site.ask(path)[0] for path in ("/healthz", "/readyz", "/api/status")] == [200, 200, 200]
    assert time.monotonic() - began < 10
    monkeypatch.undo()
    answers.set()
    for each in readers:
        each.join()


@pytest.mark.slow
def test_requests_do_not_wait_for_one_another_to_learn_that_the_coordinator_is_away() -> None:
    console = Console.of("zk://127.0.0.1:1/away?connect_timeout_s=15")
    port, end = serve(console, "127.0.0.1", 0)
    statuses: list[int] = []
    readers = [
        threading.Thread(target=lambda each=each: statuses.append(Site("", console, port).ask(f"/api/table?location={each}")[0]))
        for each in range(3)
    ]
    began = time.monotonic()
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert (statuses, time.monotonic() - began < 14) == ([503] * 3, True)
    end()


def test_the_status_is_the_document(site: Site, table: sluice.Table) -> None:
    seen = site.json("/api/status")
    Draft202012Validator(schema()).validate(seen)
    assert [each["location"] for each in seen["tables"]] == [table.location]


def test_a_table_shows_its_transactions_queue_leases_and_schema(site: Site, table: sluice.Table) -> None:
    undecided(table, ROWS)
    with table.lease("shared", name="repair"):
        seen = site.json("/api/table", location=table.location)
    assert (seen["version"], seen["published"], seen["log_trouble"]) == (1, 1, None)
    bars = seen["bars"]
    assert [(each["version"], each["operation"], each["application"]) for each in bars] == [
        (0, "CREATE TABLE", "loader"),
        (1, "WRITE", "loader"),
    ]
    assert all(each["queued_ms"] <= each["decided_ms"] <= each["published_ms"] for each in bars)
    [waiting] = seen["queue"]
    assert (waiting["operation"], waiting["application"], waiting["read_version"]) == ("WRITE", "loader", 0)
    [held] = seen["leases"]
    assert (held["name"], held["mode"], held["held"], held["application"]) == ("repair", "shared", True, "loader")
    assert int(held["token"]) > 0
    assert [(each["name"], each["type"]) for each in seen["columns"]] == [("region", "string"), ("id", "long")]
    assert seen["partitioned_by"] == ["region"]


def test_a_version_from_before_the_table_was_attached_has_the_time_of_its_file(site: Site, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "theirs", ROWS)
    os.utime(tmp_path / "theirs" / "_delta_log" / f"{0:020}.json", (1_600_000_000, 1_600_000_000))
    table = sluice.Table.attach(str(tmp_path / "theirs"), coordinator=site.coordinator)
    bars = site.json("/api/table", location=table.location)["bars"]
    assert [(each["version"], each["decided_ms"]) for each in bars if each["version"] == 0] == [(0, 1_600_000_000_000)]
    assert table.history()[-1].timestamp == 1_600_000_000_000


def test_records_that_cannot_be_read_hide_no_table(site: Site, table: sluice.Table) -> None:
    context = table.coordinated.context
    context.connect().ensure_path(context.tree.consumers)
    for path in ("/clients/strange", context.tree.consumer("strange")):
        context.connect().create(path, b"\xff\x00")
    seen = site.json("/api/table", location=table.location)
    assert (seen["version"], [each["name"] for each in seen["consumers"]]) == (1, ["strange (unreadable)"])
    status = site.json("/api/status")
    assert (status["coordinator"]["clients"], status["messages"]) == ({sluice.__version__: 1}, [])


def test_looking_publishes_and_decides_nothing(site: Site, table: sluice.Table) -> None:
    undecided(table, ROWS)
    for _ in range(2):
        site.json("/api/table", location=table.location)
        site.json("/api/files", location=table.location)
        time.sleep(0.9)
    assert site.json("/api/status")["tables"][0]["queue"]["length"] == 1


def test_a_refusal_says_the_rule_the_winner_and_what_avoids_it(site: Site, table: sluice.Table) -> None:
    refused(table, ROWS)
    seen = site.json("/api/table", location=table.location)
    [lost] = [each for each in seen["bars"] if "refusal" in each]
    assert (lost["version"], lost["published_ms"], lost["application"]) == (None, None, "loader")
    assert lost["queued_ms"] <= lost["decided_ms"]
    refusal = lost["refusal"]
    assert refusal["rule"]
    assert refusal["remedy"]
    assert (refusal["winning_version"], refusal["winning_operation"]) == (2, "WRITE")
    assert refusal["facts"]["winner"]["application"] == "loader"


def test_a_refusal_is_shown_after_its_record_went(site: Site, table: sluice.Table) -> None:
    refused(table, ROWS)
    for _ in range(140):
        table.append(ROWS)
    seen = site.json("/api/table", location=table.location)
    assert sum("refusal" in each for each in seen["bars"]) == 1
    assert [each["version"] for each in seen["bars"] if each["version"] is not None] == list(range(144))


def test_the_files_are_shown_by_partition_and_the_smallest_are_left_out(
    site: Site, table: sluice.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.operating.console.table_page._SQUARES_MAX", 1)
    table.append(pa.table({"region": ["north"] * 999, "id": list(range(999))}, SCHEMA))
    seen = site.json("/api/files", location=table.location)
    assert (seen["by"], seen["files"]) == (["region"], 3)
    assert [(each["name"], each["files"]) for each in seen["parts"]] == [("region=north", 2)]
    assert seen["left_out"] == 1
    assert 0 < seen["parts"][0]["bytes"] < seen["bytes"]


def test_a_table_whose_log_is_away_still_shows_its_nodes(site: Site, table: sluice.Table, tmp_path: Path) -> None:
    (tmp_path / "table").rename(tmp_path / "elsewhere")
    seen = site.json("/api/table", location=table.location)
    assert seen["log_trouble"]
    assert seen["version"] == 1
    code, _, body = site.ask(f"/api/files?location={urllib.parse.quote(table.location)}")
    assert (code, "error" in json.loads(body)) == (404, True)


def test_of_very_many_transactions_the_last_are_sent(site: Site, table: sluice.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.operating.console.table_page._BARS_MAX", 3)
    for _ in range(4):
        table.append(ROWS)
    seen = site.json("/api/table", location=table.location)
    assert ([each["version"] for each in seen["bars"]], seen["bars_left_out"]) == ([3, 4, 5], 3)


def test_a_table_that_was_made_again_shows_nothing_of_the_one_before(site: Site, table: sluice.Table, tmp_path: Path) -> None:
    assert [each["application"] for each in site.json("/api/table", location=table.location)["bars"]] == ["loader", "loader"]
    table.drop()
    made = sluice.Table.create(tmp_path / "table", SCHEMA, coordinator=site.coordinator, application="another")
    made.append(ROWS)
    time.sleep(0.9)
    assert [each["application"] for each in site.json("/api/table", location=made.location)["bars"]] == ["another", "another"]


def test_it_reads_no_table_that_the_coordinator_does_not_keep(site: Site, table: sluice.Table, tmp_path: Path) -> None:
    for path in ("/api/table", "/api/files"):
        for location in (str(tmp_path), "file:///etc", "", "s3://bucket/other"):
            assert site.ask(f"{path}?location={urllib.parse.quote(location, safe='')}")[0] == 404


def test_nothing_secret_is_shown(site: Site, table: sluice.Table) -> None:
    table.set_properties({"my.token": "hunter3"})
    seen = site.json("/api/table", location=table.location)
    assert (seen["properties"]["my.password"], seen["properties"]["my.note"]) == ("***", "fine")
    assert seen["bars"][-1]["operation"] == "SET TBLPROPERTIES"
    assert "hunter" not in json.dumps(seen)
    names = ["api_key", "fs.azure.account.key.x", "passwd", "sas", "access-key", "connection_string"]
    assert set(masked(dict.fromkeys(names, "x")).values()) == {"***"}
    assert masked({"fs.s3a.secret.key": "x", "Token": "y", "delta.appendOnly": "true"}) == {
        "fs.s3a.secret.key": "***",
        "Token": "***",
        "delta.appendOnly": "true",
    }


# -- news ------------------------------------------------------------------------------------------------------------------


def test_events_have_the_document_when_it_has_something_new(site: Site, table: sluice.Table) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    versions: list[int] = []
    while not versions or versions[-1] < 2:
        line = answer.readline()
        if line.startswith(b"data: {"):
            versions.append(json.loads(line[6:])["tables"][0]["version"])
            if versions[-1] == 1:
                table.append(ROWS)
    assert sorted(versions) == versions
    connection.close()


def test_nobody_looks_while_nobody_watches(site: Site) -> None:
    looks: list[float] = []

    def look() -> sluice.Status:
        looks.append(time.monotonic())
        return status(site.coordinator)

    watcher = Watcher(look, every_s=0.05)
    time.sleep(0.3)
    assert not looks
    news = threading.Event()
    with watcher.watched(news.set), watcher.watched(news.set):
        assert news.wait(10)
        time.sleep(0.5)
    time.sleep(0.2)
    count = len(looks)
    assert 2 <= count <= 12, "one thread looks, however many watch"
    time.sleep(0.3)
    assert len(looks) == count
    assert watcher.seen.number == 1, "nothing was new after the first look"
    watcher.close()


def test_who_comes_later_sees_a_new_look_first(site: Site) -> None:
    watcher, news = Watcher(lambda: status(site.coordinator), every_s=60), threading.Event()
    with watcher.watched(news.set):
        assert news.wait(10)
    before = watcher.seen
    time.sleep(0.3)
    news.clear()
    with watcher.watched(news.set):
        assert watcher.seen is not before
        assert news.wait(10)
        assert (watcher.seen.number, watcher.seen.at > before.at) == (before.number + 1, True)
    watcher.close()


def test_a_look_that_takes_long_is_not_followed_by_an_endless_pause(site: Site) -> None:
    def look() -> sluice.Status:
        looks.append(time.monotonic())
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass
        return seen

    looks: list[float] = []
    seen = status(site.coordinator)
    watcher = Watcher(look, every_s=0.1)
    with watcher.watched(lambda: None):
        deadline = time.monotonic() + 6
        while len(looks) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
    watcher.close()
    assert len(looks) >= 3, "a share of 3 % would be a pause of 7 s"


def test_a_look_that_fails_is_followed_by_others(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    looks: list[int] = []

    def look() -> sluice.Status:
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("made up")
        return status(site.coordinator)

    watcher, news = Watcher(look, every_s=0.05), threading.Event()
    with watcher.watched(news.set):
        assert news.wait(10)
    watcher.close()
    assert "made up" in caplog.text


# -- who is answered -------------------------------------------------------------------------------------------------------


def test_every_answer_says_what_a_browser_may_do_with_it(site: Site) -> None:
    for path in ("/", "/api/status", "/static/main.js", "/nothing", "/api/table?location=x"):
        _, headers, _ = site.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"], headers["cache-control"]) == (
            "nosniff",
            "no-referrer",
            "no-store",
        )
    page = (STATIC / "index.html").read_text()
    assert "style=" not in page
    assert "<style" not in page
    assert page.count("<script") == page.count('<script type="module" src="/static/') == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.evil.example", "[::1].evil.example"]
)
def test_a_request_by_the_name_of_another_host_is_not_answered(site: Site, host: str) -> None:
    assert site.ask("/api/status", Host=host)[0] == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9466", "LOCALHOST", "[::1]:9466", "10.1.2.3:80"])
def test_a_request_by_an_address_or_as_localhost_is_answered(site: Site, host: str) -> None:
    assert site.ask("/api/settings", Host=host)[0] == 200


def test_a_proxy_may_use_the_names_that_are_allowed(site: Site, token_file: Path) -> None:
    console = Console.of(site.coordinator, token_file=token_file, names=["Tables.example"])
    port, end = serve(console, "127.0.0.1", 0)
    behind = Site(site.coordinator, console, port)
    for host in ("tables.example", "TABLES.example:8443"):
        assert behind.ask("/api/settings", Host=host)[0] == 200
    assert behind.ask("/api/settings", Host="evil.tables.example")[0] == 421
    origins = {"https://tables.example": 400, "https://Tables.example:8443": 400, "https://evil.example": 403, "null": 403, "https://": 403}
    for origin, code in origins.items():  # 400: it was let through, and there is no such action
        assert behind.ask("/api/actions/none", "POST", {}, Origin=origin, X_Sluice_Token=TOKEN)[0] == code, origin
    end()


def test_without_a_token_file_nothing_but_reading_is_allowed(site: Site, table: sluice.Table) -> None:
    assert site.json("/api/settings")["actions"] is False
    assert site.act("compact", table)[0] == 405
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "POST"):
        assert site.ask("/api/status", method)[0] == 405


@with_token
def test_an_action_needs_the_token_and_a_page_of_the_console(site: Site, table: sluice.Table) -> None:
    assert site.json("/api/settings")["actions"] is True
    assert site.act("compact", table, token="")[0] == 401
    assert site.act("compact", table, token=TOKEN[:-1])[0] == 401
    assert site.act("compact", table, Origin="https://evil.example")[0] == 403
    assert site.act("compact", table, Origin="null")[0] == 403
    assert site.act("compact", table, Sec_Fetch_Site="cross-site")[0] == 403
    assert site.act("compact", table, Origin=f"http://127.0.0.1:{site.port}", Sec_Fetch_Site="same-origin")[0] == 200
    assert site.ask("/api/actions/compact", "DELETE", X_Sluice_Token=TOKEN)[0] == 405


@with_token
def test_a_compaction_is_made_and_logged(site: Site, table: sluice.Table, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        table.append(ROWS)
    with caplog.at_level(logging.WARNING, "sluice.operating.console"):
        assert site.act("compact", table) == (200, {"done": "compacted in version 5"})
    assert table.history(1)[0].application == "sluice console"
    assert f"compact  of {table.location} by eve at 127.0.0.1: compacted in version 5" in caplog.text


@with_token
def test_an_action_that_fails_unexpectedly_is_logged_too(
    site: Site, table: sluice.Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sluice.Table, "compact", lambda _self: 1 // 0)
    assert site.act("compact", table)[0] == 500
    assert f"compact  of {table.location} by eve at 127.0.0.1: ZeroDivisionError: " in caplog.text


@with_token
def test_a_lease_is_broken_in_the_name_of_who_did_it(site: Site, table: sluice.Table) -> None:
    lease = table.lease(name="repair")
    [row] = site.json("/api/table", location=table.location)["leases"]
    code, answer = site.act("break-lease", table, row["lease"])
    assert (code, answer["done"].startswith("broken: ")) == (200, True)
    time.sleep(0.9)
    seen = site.json("/api/table", location=table.location)
    assert (seen["leases"], seen["broken"][0]["by"]) == ([], "eve (console)")
    lease.release()
    assert site.act("break-lease", table, row["lease"])[0] == 400


@with_token
def test_a_transaction_is_withdrawn(site: Site, table: sluice.Table) -> None:
    undecided(table, ROWS)
    [row] = site.json("/api/table", location=table.location)["queue"]
    code, answer = site.act("withdraw", table, row["transaction_id"])
    assert (code, "withdrawn" in answer["done"]) == (200, True)
    assert table.refresh().version == 1
    assert table.outcome(row["transaction_id"]).state == "refused"
    done = table.append(ROWS)
    assert done is not None
    assert site.act("withdraw", table, done.transaction_id)[1]["done"] == "too late: it is committed as version 2"


@with_token
def test_a_dry_vacuum_deletes_nothing(site: Site, table: sluice.Table, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*.parquet"))
    table.delete("region = 'north'")
    code, answer = site.act("dry-vacuum", table)
    assert (code, answer["done"].startswith("a vacuum would delete 0 files")) == (200, True)
    assert set(before) <= set(tmp_path.rglob("*.parquet"))


@with_token
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"by": ""}, "by is empty"),
        ({"by": 5}, "by is not a printable text"),
        ({"by": "eve\nfake log line"}, "by is not a printable text"),
        ({"location": "file:///etc"}, "keeps no table"),
        ({"what": "x" * 201}, "what is not a printable text"),
    ],
)
def test_wrong_fields_of_an_action_are_refused(site: Site, table: sluice.Table, fields: dict[str, Any], message: str) -> None:
    whole = {"location": table.location, "by": "eve", "what": "", **fields}
    code, _, body = site.ask("/api/actions/compact", "POST", whole, X_Sluice_Token=TOKEN)
    assert code in (400, 404)
    assert message in json.loads(body)["error"]


@with_token
def test_what_is_no_action_is_refused_and_makes_no_line_of_the_log(
    site: Site, table: sluice.Table, caplog: pytest.LogCaptureFixture
) -> None:
    assert site.act("drop", table)[0] == site.act("compact%0AWARNING%20forged", table)[0] == 400
    assert "forged" not in caplog.text
    for body in ("text", ["list"], 5):
        assert site.ask("/api/actions/compact", "POST", body, X_Sluice_Token=TOKEN)[0] == 400


# -- the command -----------------------------------------------------------------------------------------------------------


def test_a_token_file_that_others_may_read_or_that_is_too_short_is_refused(token_file: Path) -> None:
    assert read_token(token_file) == TOKEN
    token_file.chmod(0o660)
    with pytest.raises(InvalidRequest, match="its group can change it: chmod 600"):
        read_token(token_file)
    token_file.chmod(0o440)
    assert read_token(token_file) == TOKEN
    token_file.chmod(0o600)
    for text in ("", "short", "with spaces in it, and long", "ünicode-of-16-characters"):
        token_file.write_text(text)
        with pytest.raises(InvalidRequest, match="at least 16 printable characters"):
            read_token(token_file)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_token(token_file.with_name("none"))


def test_the_command_says_what_is_wrong_before_it_serves(token_file: Path) -> None:
    token_file.chmod(0o644)
    result = CliRunner().invoke(main, ["console", "--coordinator", "memory://x", "--token-file", str(token_file)])
    assert (result.exit_code, "chmod 600" in result.stderr) == (2, True)


def test_a_port_that_is_taken_is_named(site: Site) -> None:
    result = CliRunner().invoke(main, ["console", "--coordinator", site.coordinator, "--port", str(site.port)])
    assert (result.exit_code, "give another --host or --port" in result.stderr) == (1, True)
