"""Credentials, closed nodes and TLS, with a real server that asks who comes."""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import ACL, Id, make_digest_acl

from sluice import Table
from sluice.coordinator.errors import CoordinatorUnavailable
from sluice.coordinator.nodes.layout import TableTree
from sluice.coordinator.service.address import Address
from sluice.coordinator.service.connect import close_all, connect
from sluice.coordinator.service.store import ANY_VERSION, Create
from sluice.coordinator.service.zookeeper.session import ZooKeeperStore
from sluice.coordinator.service.zookeeper.trust import Secret, Tls, Trust
from sluice.coordinator.service.zookeeper.wire import below
from sluice.storage.errors import AccessDenied, InvalidRequest, NotATable
from tests.coordinator.secured import SASL_USERS, Authority, Secured, secured_server

MARK = "marked-digest-password"
SCHEMA = pa.schema([("i", pa.int64())])
ROW = pa.table({"i": [1]})
CLOSED = make_digest_acl("ann", MARK, all=True)

Become: TypeAlias = "Callable[..., None]"
server_is_real = pytest.mark.zookeeper


@pytest.fixture(scope="module")
def zk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_server(tmp_path_factory.mktemp("secured") / "server") as running:
        yield running


@pytest.fixture
def chroot() -> str:
    return f"/test-{uuid.uuid4().hex}/finance"


@pytest.fixture
def address(zk: Secured, chroot: str) -> str:
    return f"zk://{zk.plain}{chroot}"


@pytest.fixture(autouse=True)
def become(monkeypatch: pytest.MonkeyPatch) -> Iterator[Become]:
    """Clients that connect from now on are this user; sessions are of one test."""

    def act(user: str | None, password: str = MARK) -> None:
        close_all()
        for name, value in (("SLUICE_ZOOKEEPER_USER", user), ("SLUICE_ZOOKEEPER_PASSWORD", user and password)):
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)

    yield act
    close_all()


@pytest.fixture
def table(address: str, become: Become, tmp_path: Path) -> Table:
    """A table of ann, who is the present user."""
    become("ann")
    return Table.create(tmp_path / "t", SCHEMA, coordinator=address)


def append(table: Table) -> int:
    commit = table.append(ROW)
    assert commit is not None
    return commit.version


def walk(store: Any, path: str = "/") -> Iterator[str]:
    yield path
    for name in store.children(path) or ():
        yield from walk(store, f"{path.rstrip('/')}/{name}")


def lists_of(address: str) -> dict[str, list[ACL]]:
    """The access list of every node below the chroot, as the present user sees it."""
    store = connect(address)
    assert isinstance(store, ZooKeeperStore)
    return {path: store._client.get_acls(below(store._root, path))[0] for path in walk(store)}


def in_time(call: Callable[[], object], error: type[Exception], match: str, within_s: float = 10.0) -> Exception:
    started = time.monotonic()
    with pytest.raises(error, match=match) as raised:
        call()
    assert time.monotonic() - started < within_s
    return raised.value


@server_is_real
class TestClosedNodes:
    @pytest.mark.costly
    def test_every_node_belongs_to_its_user_and_nobody_else(self, address: str, chroot: str, table: Table) -> None:
        table.append(ROW)
        connect(address).create(TableTree(table.location).slot_prefix(0, "left"), b"x", sequential=True)
        lists = lists_of(address)
        assert len(lists) > 8
        assert {path: acl for path, acl in lists.items() if acl != [CLOSED]} == {}
        store = connect(address)
        assert isinstance(store, ZooKeeperStore)
        assert store._client.get_acls(os.path.dirname(chroot))[0] == [CLOSED]  # noqa: PTH120

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("scheme", "credentials"),
        [
            pytest.param("", "", id="nobody"),
            pytest.param("digest", "ann:another-password", id="wrong password"),
            pytest.param("digest", f"bob:{MARK}", id="another user"),
            pytest.param("sasl", f"other:{SASL_USERS['other']}", id="a user of the server"),
        ],
    )
    def test_others_cannot_read_an_intent_decide_file_or_take_a_lease(
        self, zk: Secured, chroot: str, address: str, table: Table, scheme: str, credentials: str
    ) -> None:
        tree = TableTree(table.location)
        intent = connect(address).create(tree.slot_prefix(0, "of-ann"), b"what it holds", sequential=True)
        user, _, password = credentials.partition(":")
        stranger: Any = KazooClient(
            zk.plain,
            auth_data=[("digest", credentials)] if scheme == "digest" else None,
            sasl_options={"mechanism": "DIGEST-MD5", "username": user, "password": password} if scheme == "sasl" else None,
        )
        stranger.start()
        try:
            attempts: list[Callable[[], object]] = [
                lambda: stranger.get(chroot + intent),
                lambda: stranger.get(chroot + tree.head),
                lambda: stranger.get_children(chroot + tree.slots(0)),
                lambda: stranger.get_children(chroot + tree.refused),
                lambda: stranger.get_children(chroot),
                lambda: stranger.set(chroot + tree.head, b"{}"),
                lambda: stranger.set(chroot + tree.published, b"{}"),
                lambda: stranger.create(chroot + tree.slot_prefix(0, "of-a-stranger"), b"", sequence=True),
                lambda: stranger.create(f"{chroot}{tree.verdicts}/x"),
                lambda: stranger.create(f"{chroot}{tree.root}/leases/l-1-", ephemeral=True, sequence=True, makepath=True),
                lambda: stranger.create(f"{chroot}/clients/nobody", ephemeral=True),
                lambda: stranger.create(f"{chroot}/tables/another"),
                lambda: stranger.delete(chroot + intent),
                lambda: stranger.set_acls(chroot + tree.head, [make_digest_acl("bob", "b", all=True)]),
            ]
            for attempt in attempts:
                with pytest.raises(NoAuthError):
                    attempt()
            batch = stranger.transaction()
            batch.check(chroot + tree.head, ANY_VERSION)
            batch.set_data(chroot + tree.head, b"{}")
            assert any(isinstance(result, NoAuthError) for result in batch.commit())
        finally:
            stranger.stop()
            stranger.close()
        assert append(table) == 1

    @pytest.mark.parametrize("user", [None, "bob"])
    def test_sluice_with_other_credentials_says_so_at_once(
        self, zk: Secured, address: str, table: Table, become: Become, user: str | None
    ) -> None:
        become(user, "another-password")
        denied = in_time(lambda: Table.open(table.location, coordinator=address), AccessDenied, "SLUICE_ZOOKEEPER_PASSWORD")
        assert zk.plain in str(denied)
        assert ("user 'bob'" if user else "without credentials") in str(denied)
        assert "another-password" not in str(denied)

    def test_sasl(self, address: str, tmp_path: Path, become: Become) -> None:
        become("loader", SASL_USERS["loader"])
        address += "?auth=sasl"
        table = Table.create(tmp_path / "t", SCHEMA, coordinator=address)
        assert append(table) == 1
        assert set(map(tuple, lists_of(address).values())) == {(ACL(31, Id("sasl", "loader")),)}
        become("loader", "wrong-password")
        in_time(lambda: Table.open(tmp_path / "t", coordinator=address), AccessDenied, "user 'loader' \\(sasl\\)")
        become("other", SASL_USERS["other"])
        in_time(lambda: Table.open(tmp_path / "t", coordinator=address), AccessDenied, "user 'other' \\(sasl\\)")

    def test_the_size_of_access_lists_counts(self, zk: Secured, chroot: str) -> None:
        """The bound on a request holds with the longest of users: the server would drop the connection, again and again."""
        trust = Trust("digest", "u" * 200, Secret(MARK))
        store = ZooKeeperStore.connect(zk.plain, chroot=chroot, trust=trust, retry_s=5)
        ops = [Create(f"/{number:04d}") for number in range(5000)]
        with pytest.raises(InvalidRequest, match="split it"):
            store.apply(ops)
        assert len(store.apply(ops[:2500])) == 2500
        store.close()

    def test_groups_of_tables_are_closed_to_each_other(self, zk: Secured, tmp_path: Path, become: Become) -> None:
        group = f"/test-{uuid.uuid4().hex}"
        (tmp_path / "secret").write_text("sal:the-password-of-sales\n")
        finance, sales = f"zk://{zk.plain}{group}-finance", f"zk://{zk.plain}{group}-sales?credentials={tmp_path}/secret"
        become("ann")
        ledger = Table.create(tmp_path / "ledger", SCHEMA, coordinator=finance)
        orders = Table.create(tmp_path / "orders", SCHEMA, coordinator=sales)  # both in one process, each as its own user
        assert (append(ledger), append(orders)) == (1, 1)
        with pytest.raises(NotATable, match="belongs to the coordinator"):
            Table.open(tmp_path / "orders", coordinator=finance)
        into_sales = f"zk://{zk.plain}{group}-sales"
        for attempt in (
            lambda: Table.open(tmp_path / "orders", coordinator=into_sales),
            lambda: Table.create(tmp_path / "more", SCHEMA, coordinator=into_sales),
        ):
            in_time(attempt, AccessDenied, "user 'ann'")
        below = f"{into_sales}/below"
        in_time(lambda: connect(below), AccessDenied, f"{group}-sales.* denied to user 'ann'")

    def test_a_chroot_that_others_may_change_is_pointed_out(
        self, address: str, chroot: str, become: Become, caplog: pytest.LogCaptureFixture
    ) -> None:
        connect(address)
        assert "closed to others" not in caplog.text
        become("ann")
        connect(address)
        assert f"below {chroot} are closed to others, {chroot} itself is not" in caplog.text
        caplog.clear()
        connect(f"{address}/mine")
        assert "closed to others" not in caplog.text


@server_is_real
class TestTls:
    @pytest.fixture
    def tls(self, zk: Secured, chroot: str) -> Callable[..., str]:
        """The address with options; the server's authority is trusted unless `ca` names another one."""

        def address(**options: object) -> str:
            named = {"tls": "true", "ca": zk.authority.ca, **options}
            return f"zk://{zk.secure}{chroot}?" + "&".join(f"{name}={value}" for name, value in named.items() if value)

        return address

    def test_a_table_through_tls_with_a_certificate_of_ones_own(
        self, zk: Secured, tls: Callable[..., str], tmp_path: Path, become: Become
    ) -> None:
        become("ann")
        cert, key = zk.authority.issue("writer")
        address = tls(cert=cert, key=key)
        table = Table.create(tmp_path / "t", SCHEMA, coordinator=address)
        assert [append(table) for _ in range(3)] == [1, 2, 3]
        assert {path: acl for path, acl in lists_of(address).items() if acl != [CLOSED]} == {}  # not the certificate's too

    def test_replies_that_come_together_are_all_read(self, zk: Secured, tls: Callable[..., str]) -> None:
        cert, key = zk.authority.issue("reader")
        store = connect(tls(cert=cert, key=key))
        store.apply([Create(f"/n{number}", bytes(200)) for number in range(500)])
        started = time.monotonic()
        for _ in range(5):
            assert all(store.read_many([f"/n{number}" for number in range(500)]))
        assert time.monotonic() - started < 10

    def test_a_server_signed_by_somebody_else_is_refused(self, zk: Secured, tls: Callable[..., str], tmp_path: Path) -> None:
        cert, key = zk.authority.issue("writer")
        other = Authority(tmp_path / "other", "somebody else")
        wrong = tls(ca=other.ca, cert=cert, key=key)
        refused = in_time(lambda: connect(wrong), AccessDenied, "CERTIFICATE_VERIFY_FAILED.*ca=")
        assert zk.secure in str(refused)
        in_time(lambda: connect(tls(ca="", cert=cert, key=key)), AccessDenied, "CERTIFICATE_VERIFY_FAILED")

    def test_a_client_without_a_certificate_or_with_a_foreign_one_is_refused(
        self, zk: Secured, tls: Callable[..., str], tmp_path: Path
    ) -> None:
        in_time(lambda: connect(tls()), AccessDenied, "cert= and key=")
        foreign, key = Authority(tmp_path / "other", "somebody else").issue("writer")
        in_time(lambda: connect(tls(cert=foreign, key=key)), AccessDenied, "cert= and key=")

    def test_the_host_has_to_be_the_one_the_certificate_names(self, zk: Secured, tls: Callable[..., str]) -> None:
        cert, key = zk.authority.issue("writer")
        elsewhere = tls(cert=cert, key=key).replace("127.0.0.1", "localhost")
        in_time(lambda: connect(elsewhere), AccessDenied, "localhost")
        assert connect(f"{elsewhere}&verify_hostname=false").children("/") == []

    def test_the_plain_port_and_a_plain_client_do_not_match(self, zk: Secured, chroot: str) -> None:
        cert, key = zk.authority.issue("writer")
        files = f"ca={zk.authority.ca}&cert={cert}&key={key}"
        at_plain = f"zk://{zk.plain}{chroot}?tls=true&connect_timeout_s=2&{files}"
        in_time(lambda: connect(at_plain), CoordinatorUnavailable, "at last: .*SSL")
        in_time(lambda: connect(f"zk://{zk.secure}{chroot}?connect_timeout_s=2"), CoordinatorUnavailable, "no ZooKeeper server answered")

    def test_the_certificate_alone_can_be_whose_the_nodes_are(
        self, zk: Secured, tls: Callable[..., str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cert, key = zk.authority.issue("writer")
        address = tls(cert=cert, key=key, auth="x509")
        connect(address).create("/a")
        assert set(map(tuple, lists_of(address).values())) == {(ACL(31, Id("x509", "CN=writer")),)}
        monkeypatch.setenv("SLUICE_ZOOKEEPER_KEY_PASSWORD", "marked-key-password")
        other, other_key = zk.authority.issue("another", password="marked-key-password")
        theirs = tls(cert=other, key=other_key, auth="x509")
        in_time(lambda: connect(theirs), AccessDenied, "denied to the holder of .*another.cert.pem")

    def test_files_that_cannot_be_used_are_named(self, zk: Secured, tls: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
        cert, key = zk.authority.issue("sealed", password="marked-key-password")
        for password in ("", "wrong"):
            monkeypatch.setenv("SLUICE_ZOOKEEPER_KEY_PASSWORD", password)
            address = tls(cert=cert, key=key)
            in_time(lambda: connect(address), InvalidRequest, "SLUICE_ZOOKEEPER_KEY_PASSWORD")  # noqa: B023
        in_time(lambda: connect(tls(ca="/no/such/file")), InvalidRequest, "ca=/no/such/file cannot be used")
        in_time(lambda: connect(tls(ca=key)), InvalidRequest, "cannot be used")


@server_is_real
def test_logs_of_the_handshake_hold_no_secret(zk: Secured, address: str, become: Become, caplog: pytest.LogCaptureFixture) -> None:
    become("ann")
    with caplog.at_level(1):
        first = connect(address)
        assert isinstance(first, ZooKeeperStore)
        session, password = first._client.client_id
        assert session
        first.create("/a")
        become("loader", SASL_USERS["loader"])
        connect(f"zk://{zk.plain}/test-{uuid.uuid4().hex}?auth=sasl").create("/a")
    assert "Sending request" in caplog.text  # it was said much
    assert "id='ann:***'" in caplog.text
    sealed = CLOSED.id.id.partition(":")[2]
    for secret in (MARK, SASL_USERS["loader"], password.hex(), repr(password), sealed):
        assert secret not in caplog.text


class TestAddresses:
    @pytest.mark.parametrize(
        "text",
        [
            f"zk://ann:{MARK}@h1:2181/sluice",
            f"zk://ann:{MARK}/2@h1",
            f"zk://{MARK}@h1,h2",
            f"ann:{MARK}@h1:2181",
            f"zookeeper://ann:{MARK}@h1",
            f"embedded://ann:{MARK}@h1",
            f"zk://h1?password={MARK}",
            f"zk://h1?retry_s=5&secret={MARK}&user=ann",
            f"memory://x?password={MARK}",
        ],
    )
    def test_a_password_in_an_address_is_refused_and_not_repeated(self, text: str) -> None:
        with pytest.raises(InvalidRequest) as refused:
            Address.parse(text)
        assert MARK not in f"{refused.value}{refused.value.details}{refused.value!r}"


class TestCredentials:
    ZK = Address.parse("zk://h1")

    def test_they_come_from_the_environment_or_from_a_file_which_counts_more(self, tmp_path: Path) -> None:
        environment = {"SLUICE_ZOOKEEPER_USER": "ann", "SLUICE_ZOOKEEPER_PASSWORD": MARK}
        assert Trust.of(self.ZK, {}) == Trust()
        assert Trust.of(self.ZK, environment) == Trust("digest", "ann", Secret(MARK))
        (tmp_path / "c").write_text("bob:pass:word\n")
        with_file = Address.parse(f"zk://h1?auth=sasl&credentials={tmp_path}/c")
        assert Trust.of(with_file, environment) == Trust("sasl", "bob", Secret("pass:word"))

    @pytest.mark.parametrize("address", ["embedded://", "memory://x"])
    def test_nobody_asks_at_home(self, address: str) -> None:
        assert Trust.of(Address.parse(address), {"SLUICE_ZOOKEEPER_USER": "ann", "SLUICE_ZOOKEEPER_PASSWORD": MARK}) == Trust()

    @pytest.mark.parametrize(
        ("environment", "message"),
        [
            ({"SLUICE_ZOOKEEPER_USER": "ann"}, "SLUICE_ZOOKEEPER_PASSWORD is not"),
            ({"SLUICE_ZOOKEEPER_PASSWORD": MARK}, "SLUICE_ZOOKEEPER_USER is not"),
            ({"SLUICE_ZOOKEEPER_USER": "a:b", "SLUICE_ZOOKEEPER_PASSWORD": MARK}, "colon"),
            ({"SLUICE_ZOOKEEPER_USER": "a\nb", "SLUICE_ZOOKEEPER_PASSWORD": MARK}, "control"),
        ],
    )
    def test_half_of_them_are_none(self, environment: dict[str, str], message: str) -> None:
        with pytest.raises(InvalidRequest, match=message) as refused:
            Trust.of(self.ZK, environment)
        assert MARK not in str(refused.value)

    @pytest.mark.parametrize("text", ["", MARK, f"ann:{MARK}\nbob:{MARK}", f":{MARK}"])
    def test_a_file_of_another_form_is_refused_and_not_repeated(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "c").write_text(text)
        with pytest.raises(InvalidRequest, match="does not hold one line user:password") as refused:
            Trust.of(Address.parse(f"zk://h1?credentials={tmp_path}/c"), {})
        assert MARK not in str(refused.value)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidRequest, match="nowhere cannot be read"):
            Trust.of(Address.parse(f"zk://h1?credentials={tmp_path}/nowhere"), {})

    def test_sasl_needs_a_user_and_its_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(InvalidRequest, match="auth=sasl needs a user"):
            Trust.of(Address.parse("zk://h1?auth=sasl"), {})
        monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
        with pytest.raises(InvalidRequest, match="pip install"):
            Trust.of(Address.parse("zk://h1?auth=sasl"), {"SLUICE_ZOOKEEPER_USER": "ann", "SLUICE_ZOOKEEPER_PASSWORD": MARK})

    def test_a_secret_neither_shows_nor_travels(self) -> None:
        trust = Trust("digest", "ann", Secret(MARK), Tls(key_password=Secret(MARK)))
        assert MARK not in f"{trust!r} {trust} {trust.auth_data!r} {Secret(MARK)!r} {[Secret(MARK)]}"
        with pytest.raises(InvalidRequest, match="not pickled"):
            pickle.dumps(trust)
