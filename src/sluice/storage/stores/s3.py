"""Objects in S3 and what speaks its protocol. The only file that imports boto3.

Retries are botocore's ("standard": exponential backoff with jitter for throttling, 5xx and broken connections); ours are
only the two it does not make: a body that breaks off while it is read, and a 409 to conditional PUTs that raced.

Small PUTs go the short way (`s3_direct.py`) once a PUT of the ordinary client showed how they get to the bucket.

Conditional PUT (`If-None-Match: *`). `put_if_absent` relies on it where the store has it, else looks and then puts. Option
`conditional_put`: "true" and "false" decide; "auto", the default, believes AWS, and asks other stores once per process
and bucket: it puts a throw-away object `_delta_log/_sluice_probe-<random>` twice, the second time conditionally, and
deletes it. 412 means the store honours the header; success that it ignores it; 400 or 501 that it refuses it. Only writing
over something that exists tells the first two apart, hence the probe; its name is one that every Delta reader skips.

A reply can be lost after the store has written the object. botocore then sends the conditional PUT again and gets a 412
for our own bytes. So False from `put_if_absent` means "something is there": a caller who must know compares.
"""

from __future__ import annotations

import io
import logging
import os
import platform
import random
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, cast

import boto3
import botocore
from botocore import exceptions as boto
from botocore.config import Config
from botocore.httpsession import get_cert_path
from botocore.session import Session, get_session

from ...version import __version__
from ..constants import PROBE_PREFIX
from ..errors import AccessDenied, InvalidRequest, ObjectNotFound, SluiceError, StorageUnavailable
from .objects import ObjectInfo, Unfinished, check_folder, check_key
from .redacting import redact_logs
from .s3_direct import ALREADY, STORED, Credentials, DirectPuts
from .s3_errors import meaning
from .s3_options import S3Options, is_aws
from .s3_streams import MultipartSink, RangeSource
from .s3_uploads import just_before, milliseconds, unfinished_uploads

__all__ = ["S3Store"]

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 60
_CONNECTIONS = 64
_CONFLICT_ATTEMPTS = 8
_CONFLICT_WAIT_S = 0.05
_BODY_ATTEMPTS = 4
_STREAM_BUFFER_BYTES = 64 << 10
_AT_ONCE_BYTES = 1 << 20
_BEFORE_SEND = "before-send.s3.PutObject"
_PASSING = (409, 429)
"""Refusals that say nothing about how a request was made."""

_ENVIRONMENT = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE")
"""Variables that botocore reads when a client is made: another value means another client."""


_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.ProfileNotFound,
)


def _raise(error: Exception, uri: str, endpoint: str) -> NoReturn:
    """Raise what an error of botocore means. It never repeats credentials; neither does botocore."""
    if isinstance(error, boto.HTTPClientError) and isinstance(inner := error.kwargs.get("error"), SluiceError):
        raise inner from error  # what reading the body raised, which botocore takes for trouble with the connection
    if isinstance(error, boto.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        message = str(error.response.get("Error", {}).get("Message", ""))
        status = _status(error)
        kind, remedy = meaning(code, status)
        raise kind(f"{uri}: {remedy} ({code}: {message}; endpoint {endpoint})", uri=uri, code=code, status=status) from error
    if isinstance(error, _NO_CREDENTIALS):
        remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the options access_key_id and secret_access_key"
        raise AccessDenied(f"{uri}: no usable credentials: {error}; {remedy}", uri=uri) from error
    raise StorageUnavailable(f"{uri}: cannot reach the store at {endpoint}: {error}", uri=uri, endpoint=endpoint) from error


def _status(error: boto.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


_ClientKey = tuple[S3Options, tuple[str | None, ...]]


class _Shared:
    """What the stores of this process share. A child makes its own: connections cannot be shared across a fork, and the
    lock may be held by a thread that is gone.
    """

    def __init__(self) -> None:
        self.conditional: dict[tuple[str, str], bool] = {}
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        self.clients: dict[_ClientKey, tuple[Any, _Puts]] = {}
        self.lock = threading.Lock()

    def client(self, key: _ClientKey) -> tuple[Any, _Puts]:
        if key not in self.clients:
            with self.lock:
                if key not in self.clients:
                    self.clients[key] = _make_client(key[0])
        return self.clients[key]


class _Puts:
    """PUTs of one client: the short way where there is one, and what the ordinary ones show of it."""

    def __init__(self, client: Any, credentials: Callable[[], Credentials | None], trusted: Callable[[], ssl.SSLContext]) -> None:
        self._events = client.meta.events
        self._direct = DirectPuts(credentials, trusted)
        self._seen = threading.local()
        self._events.register_last(_BEFORE_SEND, self._look)

    def put(self, bucket: str, key: str, data: bytes | BinaryIO, ordinary: Callable[[], object], *, absent: bool) -> bool:
        """Whether this call stored the object: False only with `absent`, where there is one. Raises what the ordinary way raises."""
        status = None
        if isinstance(data, bytes) and len(data) <= _AT_ONCE_BYTES and self._direct.knows(bucket):
            status = self._direct.put(bucket, key, data, absent=absent)
            if status == STORED or (status == ALREADY and absent):
                return status == STORED
        self._seen.request = None
        ordinary()
        if not self._direct.knows(bucket):
            self._learn(bucket, key)
        elif status is not None and status not in _PASSING and status < 500:
            self._direct.unlearn(bucket)  # what is right for the ordinary client was refused
        return True

    def _learn(self, bucket: str, key: str) -> None:
        request, self._seen.request = self._seen.request, None
        if request is None or any(answer is not None for _, answer in self._events.emit(_BEFORE_SEND, request=request)):
            self._direct.unlearn(bucket)  # there are hooks that answer in place of the store
        else:
            self._direct.learn(bucket, key, str(request.url), cast(Mapping[str, str], request.headers))

    def _look(self, request: Any, **_: Any) -> None:
        self._seen.request = request


_shared = _Shared()


def _make_client(options: S3Options) -> tuple[Any, _Puts]:
    path_style = options.path_style if options.path_style is not None else options.endpoint_url is not None
    session = get_session()
    region = options.region or session.get_config_variable("region") or ("us-east-1" if options.endpoint_url else None)
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        s3={"addressing_style": "path" if path_style else "auto"},
        # stores that are not AWS often refuse the newer checksums; TLS and the ETag guard the way anyhow
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        # as botocore writes it, put together once: by itself it does so twice for every request
        user_agent=f"sluice/{__version__} Boto3/{boto3.__version__} Botocore/{botocore.__version__} Python/{platform.python_version()}",
    )
    client = boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=options.endpoint_url,
        region_name=region,
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
        aws_session_token=options.session_token,
        config=config,
    )
    client.meta.events.register_last("before-call.s3.PutObject", _send_at_once)
    redact_logs()  # whatever has loggers is imported by now
    return client, _Puts(client, partial(_credentials, session, options), partial(_trusted, session))


def _credentials(session: Session, options: S3Options) -> Credentials | None:
    """What the client signs with now: the options', or what botocore finds and refreshes."""
    if options.access_key_id is not None and options.secret_access_key is not None:
        return Credentials(options.access_key_id, options.secret_access_key, options.session_token)
    found: Any = session.get_credentials()
    if found is None:
        return None
    now = found.get_frozen_credentials()
    return Credentials(now.access_key, now.secret_key, now.token)


def _trusted(session: Session) -> ssl.SSLContext:
    """Whose certificates the client accepts."""
    told: Any = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or True
    path = Path(str(get_cert_path(told)))
    return ssl.create_default_context(capath=path) if path.is_dir() else ssl.create_default_context(cafile=path)


def _send_at_once(params: dict[str, Any], **_: Any) -> None:
    """Send a small body together with its headers: botocore would ask the server first whether it takes it, a round trip for each PUT."""
    body = params.get("body")
    if isinstance(body, io.BytesIO) and body.getbuffer().nbytes <= _AT_ONCE_BYTES:
        params["body"] = body.getvalue()
        params["headers"].pop("Expect", None)


class S3Store:
    """An ObjectStore in a bucket. `location` is normalised: `s3://bucket/path`. Nothing is sent before the first verb."""

    def __init__(self, location: str, options: S3Options | None = None) -> None:
        self._location = location
        self._options = (options or S3Options()).resolved()
        self._bucket, _, path = location.removeprefix("s3://").partition("/")
        self._root = f"{path}/" if path else ""
        self._client_key: _ClientKey = (self._options, tuple(os.environ.get(name) for name in _ENVIRONMENT))

    def __repr__(self) -> str:
        return f"S3Store({self._location!r}, endpoint_url={self._options.endpoint_url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (S3Store, (self._location, self._options))

    @property
    def location(self) -> str:
        """The normalised URI of the root."""
        return self._location

    def elsewhere(self, uri: str) -> tuple[S3Store, str] | None:
        """The bucket of an object outside of this store, reached with the same options, and its key there."""
        if not uri.startswith("s3://"):
            return None
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return S3Store(f"s3://{bucket}", self._options), key

    @property
    def _endpoint(self) -> str:
        return self._options.endpoint_url or "AWS"

    @property
    def _client(self) -> Any:
        """This process's client for these options and this environment."""
        return _shared.client(self._client_key)[0]

    def _send(self, verb: str, key: str, **parameters: Any) -> dict[str, Any]:
        """One request about an object, with botocore's errors."""
        return cast(dict[str, Any], getattr(self._client, verb)(Bucket=self._bucket, Key=self._root + check_key(key), **parameters))

    def _call(self, verb: str, key: str, **parameters: Any) -> dict[str, Any]:
        """One request about an object, with our errors."""
        try:
            return self._send(verb, key, **parameters)
        except (boto.BotoCoreError, boto.ClientError) as error:
            _raise(error, f"{self._location}/{key}", self._endpoint)

    def _send_put(self, key: str, data: bytes | BinaryIO, *, absent: bool) -> bool:
        """One PUT, with botocore's errors. False with `absent` where the store says that there is an object."""
        conditions = {"IfNoneMatch": "*"} if absent else {}
        ordinary = partial(self._send, "put_object", key, Body=data, **conditions)
        return _shared.client(self._client_key)[1].put(self._bucket, self._root + check_key(key), data, ordinary, absent=absent)

    def _read(self, key: str, range_header: str | None = None, version: str = "") -> tuple[bytes, dict[str, Any]]:
        """Body and reply of a GET, of this very version of the object if one is named; a body that breaks off is fetched again."""
        parameters = {"Range": range_header} if range_header else {}
        if version:
            parameters["IfMatch"] = version
        for attempt in range(_BODY_ATTEMPTS):
            reply = self._call("get_object", key, **parameters)
            try:
                return reply["Body"].read(), reply
            except boto.BotoCoreError as error:
                if attempt == _BODY_ATTEMPTS - 1:
                    _raise(error, f"{self._location}/{key}", self._endpoint)
                _pause(attempt)
        raise AssertionError("unreachable")

    def get(self, key: str) -> bytes:
        """The whole object. Raises ObjectNotFound."""
        return self._read(key)[0]

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer at the end. Raises ObjectNotFound."""
        return self._range_of(key, offset, length)

    def _range_of(self, key: str, offset: int, length: int, version: str = "") -> bytes:
        if length == 0:
            self.head(key)
            return b""
        try:
            return self._read(key, f"bytes={offset}-{offset + length - 1}", version)[0]
        except InvalidRequest as error:
            if error.details.get("code") == "InvalidRange":  # begins at or behind the end
                return b""
            raise

    def _tail(self, key: str, length: int) -> tuple[bytes, int, str]:
        """Up to `length` last bytes, the size of the object, and its ETag ("" for none, or one that no condition can name)."""
        try:
            data, reply = self._read(key, f"bytes=-{length}")
        except InvalidRequest as error:
            if error.details.get("code") == "InvalidRange":  # an empty object has no last bytes
                return b"", 0, ""
            raise
        _, _, size = str(reply.get("ContentRange", "")).rpartition("/")
        etag = str(reply.get("ETag") or "")
        return data, int(size) if size.isdigit() else len(data), "" if etag.startswith("W/") else etag  # no header: all of it came

    def open_input(self, key: str) -> BinaryIO:
        """A seekable binary input stream for reading by ranges, all of one version of the object. Raises ObjectNotFound."""
        return cast(BinaryIO, RangeSource(partial(self._tail, key), partial(self._range_of, key)))

    def head(self, key: str) -> ObjectInfo:
        """Size and time of one object. Raises ObjectNotFound."""
        try:
            reply = self._call("head_object", key)
        except ObjectNotFound:
            self._read(key, "bytes=0-0")  # a HEAD cannot say whether it is the bucket that is missing; a GET does
            raise
        return ObjectInfo(key, reply["ContentLength"], milliseconds(reply["LastModified"]))

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        try:
            self._send_put(key, data, absent=False)
        except (boto.BotoCoreError, boto.ClientError) as error:
            _raise(error, f"{self._location}/{key}", self._endpoint)

    @property
    def atomic_put_if_absent(self) -> bool:
        """Whether the store has conditional PUT; "auto" finds out with the first question (see the module's text)."""
        if self._options.conditional_put != "auto":
            return self._options.conditional_put == "true"
        bucket = (self._endpoint, self._bucket)
        known = _shared.conditional.get(bucket)
        if known is None:
            known = _shared.conditional[bucket] = is_aws(str(self._client.meta.endpoint_url)) or self._probe()
        return known

    def _probe(self) -> bool:
        key = PROBE_PREFIX + uuid.uuid4().hex
        self.put(key, b"")
        try:
            return not self._put_conditionally(key, b"")
        except InvalidRequest as error:
            if error.details.get("status") in (400, 501) and not isinstance(error, AccessDenied):
                return False
            raise
        finally:
            try:
                self.delete(key)
            except SluiceError as error:
                _log.warning("the probe object %s/%s was left behind: %s", self._location, key, error)

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """Write an object unless the key exists: True when this call wrote it.

        False means that something is there, which may be our own bytes after a lost reply.
        """
        if self.atomic_put_if_absent:
            return self._put_conditionally(key, data)
        try:
            self._call("head_object", key)
        except ObjectNotFound:
            self._call("put_object", key, Body=data)
            return True
        return False

    def _put_conditionally(self, key: str, data: bytes | BinaryIO) -> bool:
        for attempt in range(_CONFLICT_ATTEMPTS):
            if not isinstance(data, bytes):
                data.seek(0)  # botocore sends what comes from here on
            try:
                return self._send_put(key, data, absent=True)
            except (boto.BotoCoreError, boto.ClientError) as error:
                status = _status(error) if isinstance(error, boto.ClientError) else 0
                if status == 412:
                    return False
                if status != 409 or attempt == _CONFLICT_ATTEMPTS - 1:  # 409: another PUT of the key is under way
                    _raise(error, f"{self._location}/{key}", self._endpoint)
                _pause(attempt)
        raise AssertionError("unreachable")

    def delete(self, key: str) -> None:
        """Remove an object; a missing key is no error."""
        try:
            self._call("delete_object", key)
        except ObjectNotFound:
            return

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        """A stream whose content becomes the object when the context ends without an exception."""
        return self._open_upload(check_key(key))

    @contextmanager
    def _open_upload(self, key: str) -> Iterator[BinaryIO]:
        sink = MultipartSink(_Upload(self, key))
        stream = io.BufferedWriter(sink, _STREAM_BUFFER_BYTES)
        try:
            yield stream
            stream.close()
            sink.finish()
        except BaseException:
            sink.abort()
            stream.close()
            raise

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        """The objects in folder `prefix` with key >= `start`, ascending by key."""
        return self._list(check_folder(prefix), start, recursive)

    def unfinished(self) -> Iterator[Unfinished]:
        """The uploads in parts that were begun, and neither completed nor aborted, in no order."""
        return unfinished_uploads(partial(self._page, "list_multipart_uploads", ""), self._root)

    def abandon(self, upload: Unfinished) -> None:
        """Remove the parts of one; one that is gone is no error."""
        try:
            self._call("abort_multipart_upload", upload.key, UploadId=upload.token)
        except InvalidRequest as error:
            if error.details.get("code") != "NoSuchUpload":
                raise

    def _page(self, verb: str, prefix: str, **parameters: Any) -> dict[str, Any]:
        """One page of a listing."""
        try:
            return cast(dict[str, Any], getattr(self._client, verb)(Bucket=self._bucket, **parameters))
        except (boto.BotoCoreError, boto.ClientError) as error:
            _raise(error, f"{self._location}/{prefix}", self._endpoint)

    def _list(self, prefix: str, start: str, recursive: bool) -> Iterator[ObjectInfo]:
        parameters: dict[str, Any] = {"Prefix": self._root + prefix}
        if not recursive:
            parameters["Delimiter"] = "/"
        if start:
            parameters["StartAfter"] = self._root + just_before(start)
        last = ""
        while True:
            page = self._page("list_objects_v2", prefix, **parameters)
            for found in page.get("Contents", ()):
                if found["Key"].endswith("/"):  # consoles make objects that stand for folders
                    continue
                key = str(found["Key"])[len(self._root) :]
                if key < last:
                    raise InvalidRequest(f"{self._location}: the bucket lists {key!r} after {last!r}; sluice needs one that lists in order")
                last = key
                if key >= start:
                    yield ObjectInfo(key, found["Size"], milliseconds(found["LastModified"]))
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]


class _Upload:
    """One object written through the store; see `s3_streams.Upload`."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store = store
        self._key = key

    def put(self, data: bytes) -> None:
        self._store.put(self._key, data)

    def begin(self) -> str:
        return str(self._store._call("create_multipart_upload", self._key)["UploadId"])

    def part(self, upload_id: str, number: int, data: bytes) -> str:
        return str(self._store._call("upload_part", self._key, UploadId=upload_id, PartNumber=number, Body=data)["ETag"])

    def complete(self, upload_id: str, etags: list[str], size: int) -> None:
        parts = [{"ETag": etag, "PartNumber": number} for number, etag in enumerate(etags, 1)]
        try:
            self._store._call("complete_multipart_upload", self._key, UploadId=upload_id, MultipartUpload={"Parts": parts})
        except InvalidRequest as error:
            # the reply to an earlier try was lost: the upload is gone because it is the object now
            if error.details.get("code") != "NoSuchUpload" or self._store.head(self._key).size != size:
                raise

    def abort(self, upload_id: str) -> None:
        try:
            self._store._call("abort_multipart_upload", self._key, UploadId=upload_id)
        except SluiceError as error:  # the failure that led here matters more
            _log.warning("parts of %s/%s may be left behind: %s", self._store.location, self._key, error)


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0.5, 1.0) * _CONFLICT_WAIT_S * 2**attempt)  # noqa: S311 (jitter is no secret)
