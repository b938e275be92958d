"""The S3 store: retries, races, multipart, and errors by what to do about them."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import socket
import socketserver
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import botocore.auth
import pytest

from sluice.dev import HttpServer, Reply, S3DevServer
from sluice.storage.actions.texts import LongText, stream_of
from sluice.storage.errors import AccessDenied, BadChecksum, InvalidRequest, NoSuchBucket, ObjectNotFound, StorageFull, StorageUnavailable
from sluice.storage.stores import s3, streams
from sluice.storage.stores.location import open_store
from sluice.storage.stores.objects import ObjectStore
from sluice.storage.stores.s3 import meaning
from sluice.storage.stores.storage_options import StorageOptions

pytestmark = pytest.mark.s3

MIB = 1 << 20


class FakeS3:
    """Answers from a script: each request takes the next reply, the last one for good. Notes what was asked."""

    def __init__(self) -> None:
        self.script: list[Reply] = [(200, {"ETag": '"x"'}, b"")]
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.options: dict[str, str] = {}
        self.lock = threading.Lock()

    def __call__(self, environ: dict[str, Any]) -> Reply:
        with self.lock:
            self.requests.append((environ["REQUEST_METHOD"], unquote(environ["RAW_URI"]), environ))
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _, _ in self.requests]


def error(status: int, code: str) -> Reply:
    return status, {"Content-Type": "application/xml"}, f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode()


@pytest.fixture
def fake() -> Iterator[FakeS3]:
    application = FakeS3()
    with HttpServer("127.0.0.1", 0, application) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        application.options = {
            "endpoint_url": f"http://127.0.0.1:{server.port}",
            "access_key_id": "some-key",
            "secret_access_key": "hunter2",
            "conditional_put": "true",
            "max_attempts": "2",
        }
        yield application
        server.shutdown()
        thread.join()


def fake_store(fake: FakeS3, **options: str) -> ObjectStore:
    return open_store("s3://bucket/table", {**fake.options, **options})


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_CONFLICT_WAIT_S", 0.001)


@contextmanager
def raises_without_secret(kind: type[Exception], message: str) -> Iterator[None]:
    with pytest.raises(kind, match=message) as caught:
        yield
    assert "hunter2" not in repr(caught.value)
    assert "hunter2" not in str(caught.value.__cause__)


VERBS: dict[str, Callable[[ObjectStore], object]] = {
    "get": lambda store: store.get("key"),
    "get_range": lambda store: store.get_range("key", 0, 1),
    "head": lambda store: store.head("key"),
    "open_input": lambda store: store.open_input("key"),
    "put": lambda store: store.put("key", b""),
    "put_if_absent": lambda store: store.put_if_absent("key", b""),
    "delete": lambda store: store.delete("key"),
    "list": lambda store: list(store.list_from("")),
    "upload": lambda store: upload(store, 10),
    "multipart": lambda store: upload(store, 9 * MIB),
}


def upload(store: ObjectStore, size: int) -> None:
    with store.upload("key") as stream:
        stream.write(b"x" * size)


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_bucket_is_named_by_every_verb(verb: str, s3_options: dict[str, str]) -> None:
    store = open_store("s3://no-such-bucket/t", s3_options)
    with pytest.raises(NoSuchBucket, match=r"s3://no-such-bucket/t.*no such bucket; create it"):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
def test_wrong_credentials_are_denied_by_every_verb(verb: str, s3_options: dict[str, str], s3_location: str) -> None:
    store = open_store(s3_location, {**s3_options, "access_key_id": "somebody-else", "secret_access_key": "hunter2"})
    with raises_without_secret(AccessDenied, "check"):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
def test_a_store_that_is_not_there_is_unavailable(verb: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
    options = {"endpoint_url": endpoint, "access_key_id": "a", "secret_access_key": "hunter2", "max_attempts": "1"}
    with raises_without_secret(StorageUnavailable, f"cannot reach the store at {endpoint}"):
        VERBS[verb](open_store("s3://bucket/t", options))


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    store = open_store("s3://bucket/t", {"endpoint_url": "http://127.0.0.1:9"})
    with pytest.raises(AccessDenied, match=r"no usable credentials.*AWS_ACCESS_KEY_ID"):
        store.get("key")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NoSuchBucket", 404, NoSuchBucket),
        ("NoSuchKey", 404, ObjectNotFound),
        ("AccessDenied", 403, AccessDenied),
        ("SignatureDoesNotMatch", 403, AccessDenied),
        ("ExpiredToken", 400, AccessDenied),
        ("KeyTooLongError", 400, InvalidRequest),
        ("NotImplemented", 501, InvalidRequest),
        ("InternalError", 500, StorageUnavailable),
        ("SlowDown", 503, StorageUnavailable),
        ("TooManyRequests", 429, StorageUnavailable),
        ("OperationAborted", 409, StorageUnavailable),
        ("RequestTimeout", 400, StorageUnavailable),
        ("XMinioStorageFull", 507, StorageFull),
        ("Whatever", 507, StorageFull),
    ],
)
def test_what_the_codes_mean(fake: FakeS3, code: str, status: int, kind: type[Exception]) -> None:
    fake.script = [error(status, code)]
    assert meaning(code, status)[0] is kind
    with raises_without_secret(kind, f"s3://bucket/table/key: .*{code}: said so; endpoint http://127.0.0.1"):
        fake_store(fake).get("key")


@pytest.mark.shows("store-throttles")
def test_passing_trouble_is_retried(fake: FakeS3) -> None:
    fake.script = [error(503, "SlowDown"), error(500, "InternalError"), (200, {"ETag": '"x"'}, b"")]
    fake_store(fake, max_attempts="3").put("key", b"content")
    assert fake.verbs == ["PUT", "PUT", "PUT"]
    assert {environ["wsgi.input"].getvalue() for _, _, environ in fake.requests} == {b"content"}


class _Breaking(socketserver.StreamRequestHandler):
    """Hangs up in the middle of the first body."""

    left: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        while self.rfile.readline().strip():
            continue
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + self.left.pop(0))


def test_a_body_that_breaks_off_is_fetched_again() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Breaking) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        options = {"endpoint_url": f"http://127.0.0.1:{server.server_address[1]}", "access_key_id": "a", "secret_access_key": "b"}
        store = open_store("s3://bucket/t", options)
        try:
            _Breaking.left = [b"wh", b"", b"whole"]
            assert store.get("key") == b"whole"
            _Breaking.left = [b"wh"] * 4
            with pytest.raises(StorageUnavailable):
                store.get("key")
            assert _Breaking.left == []
        finally:
            server.shutdown()
            thread.join()


def test_conditional_put_says_what_it_met(fake: FakeS3) -> None:
    store = fake_store(fake)
    fake.script = [error(412, "PreconditionFailed")]
    assert store.put_if_absent("key", b"x") is False
    fake.script = [error(409, "ConditionalRequestConflict"), error(409, "ConditionalRequestConflict"), (200, {}, b"")]
    assert store.put_if_absent("key", b"x") is True
    fake.script = [error(409, "ConditionalRequestConflict"), error(412, "PreconditionFailed")]
    assert store.put_if_absent("key", b"x") is False
    assert {environ["HTTP_IF_NONE_MATCH"] for _, _, environ in fake.requests} == {"*"}
    fake.script = [error(409, "ConditionalRequestConflict")]
    with pytest.raises(StorageUnavailable, match="ConditionalRequestConflict"):
        store.put_if_absent("key", b"x")
    fake.script = [error(501, "NotImplemented")]
    with pytest.raises(InvalidRequest, match="set the option conditional_put to false"):
        store.put_if_absent("key", b"x")


@pytest.mark.parametrize(
    ("second", "atomic"),
    [
        (error(412, "PreconditionFailed"), True),
        (error(501, "NotImplemented"), False),
        (error(400, "InvalidArgument"), False),
        ((200, {}, b""), False),
    ],
    ids=["honoured", "refused", "refused as invalid", "ignored"],
)
def test_auto_asks_once_and_cleans_up(fake: FakeS3, second: Reply, atomic: bool) -> None:
    refused = second[0] in (400, 501)  # the ordinary client has to say so, too
    fake.script = [(200, {}, b""), *[second] * (2 if refused else 1), (204, {}, b""), (200, {}, b"")]
    store = fake_store(fake, conditional_put="auto")
    assert store.atomic_put_if_absent is atomic
    assert fake.verbs == ["PUT", "PUT", *["PUT"] * refused, "DELETE"]
    probed = {uri for _, uri, _ in fake.requests}
    assert len(probed) == 1
    assert probed.pop().startswith("/bucket/table/_delta_log/_sluice_probe-")
    asked = len(fake.requests)
    assert fake_store(fake, conditional_put="auto").atomic_put_if_absent is atomic
    assert len(fake.requests) == asked


def test_auto_does_not_take_trouble_for_an_answer(fake: FakeS3) -> None:
    fake.script = [(200, {}, b""), *[error(403, "AccessDenied")] * 2, (204, {}, b"")]
    store = fake_store(fake, conditional_put="auto")
    with pytest.raises(AccessDenied):
        _ = store.atomic_put_if_absent
    fake.script = [(200, {}, b""), error(412, "PreconditionFailed"), error(403, "AccessDenied")]
    assert store.atomic_put_if_absent is True  # that the probe could not be deleted does not matter


def test_aws_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3.S3Store, "_probe", lambda _: pytest.fail("asked AWS"))
    for options in ({"region": "eu-west-1"}, {"endpoint_url": "https://s3.eu-west-1.amazonaws.com"}):
        assert open_store("s3://bucket-of-aws/t", options).atomic_put_if_absent is True


def unfinished(store: ObjectStore) -> list[str]:
    assert isinstance(store, s3.S3Store)
    return [found["Key"] for found in store._client.list_multipart_uploads(Bucket="sluice").get("Uploads", ())]


def each_call(monkeypatch: pytest.MonkeyPatch, around: Callable[..., dict[str, Any]]) -> None:
    """From now on `around` gets the verb of each request for an object, the function that sends it, and its parameters."""
    call = s3.S3Store._call

    def wrapped(self: s3.S3Store, verb: str, key: str, **parameters: Any) -> dict[str, Any]:
        return around(verb, partial(call, self, verb, key, **parameters), **parameters)

    monkeypatch.setattr(s3.S3Store, "_call", wrapped)


@pytest.mark.costly
def test_large_content_goes_in_parts_of_bounded_memory(s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(s3_store, s3.S3Store)
    held = [0]
    most = [0]
    send, part = streams.MultipartSink._send, streams.MultipartSink._upload_part

    def noted_send(self: streams.MultipartSink, data: bytes) -> None:
        send(self, data)
        held[0] += len(data)
        most[0] = max(most[0], held[0])

    def noted_part(self: streams.MultipartSink, number: int, data: bytes) -> str:
        try:
            return part(self, number, data)
        finally:
            held[0] -= len(data)

    monkeypatch.setattr(streams.MultipartSink, "_send", noted_send)
    monkeypatch.setattr(streams.MultipartSink, "_upload_part", noted_part)
    with s3_store.upload("large") as stream:
        for number in range(100):
            stream.write(bytes([number]) * MIB)
    assert s3_store.head("large").size == 100 * MIB
    assert s3_store.get_range("large", 57 * MIB - 1, 2) == bytes([56, 57])
    assert most[0] <= 6 * streams.PART_BYTES
    assert unfinished(s3_store) == []


@pytest.mark.parametrize("failing", ["upload_part", "complete_multipart_upload"])
def test_a_failed_multipart_upload_is_aborted(s3_store: ObjectStore, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(verb: str, answer: Callable[[], dict[str, Any]], **_: Any) -> dict[str, Any]:
        if verb == failing:
            raise StorageUnavailable("injected")
        return answer()

    each_call(monkeypatch, fail)
    with pytest.raises(StorageUnavailable, match="injected"):
        upload(s3_store, 30 * MIB)
    assert unfinished(s3_store) == []
    assert list(s3_store.list_from("", recursive=True)) == []


@pytest.mark.shows("store-loses-requests")
def test_a_lost_reply_to_the_completion_is_a_success(s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(verb: str, answer: Callable[[], dict[str, Any]], **_: Any) -> dict[str, Any]:
        reply = answer()
        if verb == "complete_multipart_upload":
            raise InvalidRequest("injected", code="NoSuchUpload")
        return reply

    each_call(monkeypatch, twice)
    upload(s3_store, 9 * MIB)
    assert s3_store.head("key").size == 9 * MIB


def test_a_small_object_and_a_footer_take_one_request(s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_store.put("small", b"x" * 1000)
    s3_store.put("large", b"x" * (5 * MIB) + b"footer")
    asked: list[str] = []

    def noted(verb: str, answer: Callable[[], dict[str, Any]], **parameters: Any) -> dict[str, Any]:
        asked.append(f"{verb} {parameters.get('Range', '')}")
        return answer()

    each_call(monkeypatch, noted)
    with s3_store.open_input("small") as stream:
        assert stream.read() == b"x" * 1000
    assert len(asked) == 1
    with s3_store.open_input("large") as stream:
        stream.seek(-6, 2)
        assert stream.read() == b"footer"
        assert len(asked) == 2
        stream.seek(MIB)
        assert stream.read(10) + stream.read(10) == b"x" * 20  # read ahead
        assert asked[2:] == [f"get_object bytes={MIB}-{2 * MIB - 1}"]
        stream.seek(0)
        assert len(stream.read(4 * MIB)) == 4 * MIB
        assert len(asked) == 4


def test_markers_of_folders_are_no_objects(s3_store: ObjectStore) -> None:
    assert isinstance(s3_store, s3.S3Store)
    root = s3_store.location.removeprefix("s3://sluice/")
    for key in (f"{root}/", f"{root}/folder/"):
        s3_store._client.put_object(Bucket="sluice", Key=key, Body=b"")
    s3_store.put("folder/object", b"")
    assert [found.key for found in s3_store.list_from("", recursive=True)] == ["folder/object"]
    assert [found.key for found in s3_store.list_from("folder/")] == ["folder/object"]


def test_a_bucket_that_lists_out_of_order_is_refused(fake: FakeS3) -> None:
    entry = "<Contents><Key>table/{}</Key><Size>1</Size><LastModified>2025-01-01T00:00:00Z</LastModified></Contents>"
    body = f"<ListBucketResult>{entry.format('b')}{entry.format('a')}</ListBucketResult>"
    fake.script = [(200, {"Content-Type": "application/xml"}, body.encode())]
    with pytest.raises(InvalidRequest, match="lists 'a' after 'b'"):
        list(fake_store(fake).list_from(""))


def test_a_whole_bucket_may_be_the_location(s3_options: dict[str, str]) -> None:
    store = open_store("s3://sluice", s3_options)
    key = f"root-{uuid.uuid4().hex}"
    store.put(key, b"x")
    assert key in [found.key for found in store.list_from("", key)]
    store.delete(key)


def test_the_environment_leads_to_the_store(s3_env: S3DevServer, s3_location: str) -> None:
    store = open_store(s3_location)
    store.put("key", b"x")
    assert open_store(s3_location, s3_env.options).get("key") == b"x"


def test_another_environment_means_another_client(s3_options: dict[str, str], s3_location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {name: value for name, value in s3_options.items() if not name.endswith(("key_id", "access_key"))}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with pytest.raises(AccessDenied):
        open_store(s3_location, options).put("key", b"")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_options["access_key_id"])
    open_store(s3_location, options).put("key", b"")


def test_one_client_per_process(s3_options: dict[str, str], s3_location: str) -> None:
    one, two = open_store(s3_location, s3_options), open_store(s3_location + "/sub", s3_options)
    assert isinstance(one, s3.S3Store)
    assert isinstance(two, s3.S3Store)
    assert one._client is two._client is pickle.loads(pickle.dumps(one))._client


def _in_child(store: s3.S3Store, client: int, results: Any) -> None:
    store.put("child", b"x")
    results.put(id(store._client) != client)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.long
def test_a_forked_child_makes_its_own_client(s3_store: ObjectStore) -> None:
    assert isinstance(s3_store, s3.S3Store)
    s3_store.put("parent", b"x")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with s3._shared.lock:  # as if another thread were making a client at the moment of the fork
        child = context.Process(target=_in_child, args=(s3_store, id(s3_store._client), results))
        child.start()
    assert results.get(timeout=30) is True
    child.join(30)
    assert child.exitcode == 0
    assert sorted(found.key for found in s3_store.list_from("")) == ["child", "parent"]


def test_a_deletion_that_was_prepared_too_long_ago_is_refused_by_the_store(s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "DELETION_S", 1)
    for key in ("log/0 a", "ü"):
        s3_store.put(key, b"x")
        with s3_store.prepared_deletion(key) as delete:
            time.sleep(2.1)  # the time of a signature is a whole second
            with pytest.raises(StorageUnavailable, match="expired"):
                delete()
        assert s3_store.get(key) == b"x"
        with s3_store.prepared_deletion(key) as delete:
            delete()
        assert [each.key for each in s3_store.list_from("", recursive=True)] == []


def test_requests_signed_in_advance_have_the_signature_that_all_buckets_take(s3_store: ObjectStore) -> None:
    assert isinstance(s3_store, s3.S3Store)
    url = s3_store._client.generate_presigned_url("delete_object", Params={"Bucket": "b", "Key": "k"}, ExpiresIn=60)
    query = parse_qs(urlsplit(url).query)
    assert (query["X-Amz-Algorithm"], query["X-Amz-Expires"]) == (["AWS4-HMAC-SHA256"], ["60"])


class Tampered:
    """A part of a long text that is not what it was."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 3 * MIB

    def pieces(self) -> Iterator[bytes]:
        yield b"a" * 2 * MIB
        if self.error is not None:
            raise self.error
        yield b"b" * MIB


@pytest.mark.parametrize("conditional", ["true", "false"])
@pytest.mark.parametrize(
    "error", [None, BadChecksum("shorter"), ObjectNotFound("gone", status=412), StorageUnavailable("in use", status=409)], ids=str
)
def test_a_stream_that_fails_leaves_nothing_and_says_why(
    s3_options: dict[str, str], s3_location: str, monkeypatch: pytest.MonkeyPatch, conditional: str, error: Exception | None
) -> None:
    store = open_store(s3_location, {**s3_options, "conditional_put": conditional})
    # As over TLS, where a body is read for the first time when it is sent.
    monkeypatch.setattr(botocore.auth.S3SigV4Auth, "_should_sha256_sign_payload", lambda *_: False)
    with pytest.raises(BadChecksum if error is None else type(error)):
        store.put_if_absent("key", stream_of(LongText((Tampered(error),)), "0" * 64))
    assert list(store.list_from("")) == []


def test_secrets_are_not_shown() -> None:
    options = StorageOptions.parse({"access_key_id": "me", "secret_access_key": "hunter2", "session_token": "hunter3"})
    store = s3.S3Store("s3://bucket/t", options)
    for shown in (repr(options), repr(store), str(store), json.dumps(str(vars(store)))):
        assert "hunter" not in shown


def test_a_small_object_is_sent_with_its_headers_in_one_round_trip(fake: FakeS3) -> None:
    """A question first whether the server takes the body would be another one; a large body is asked for."""
    store = fake_store(fake)
    store.put("small", b"x" * 1000)
    assert store.put_if_absent("log", b"y" * 1000)
    store.put("large", b"z" * (2 << 20))
    told = [environ for _, _, environ in fake.requests]
    assert ["HTTP_EXPECT" in each for each in told] == [False, False, True]
    assert all("sluice/" in each["HTTP_USER_AGENT"] for each in told)
    assert [len(each["wsgi.input"].getvalue()) for each in told] == [1000, 1000, 2 << 20]
