"""Objects in S3 and compatible stores. The only file that imports boto3.

Retries are botocore's ("standard": exponential backoff with jitter for throttling, 5xx and broken connections), plus two
that it does not make: a body that breaks off while it is read, and a 409 to concurrent conditional PUTs.

Small PUTs bypass boto3 (`s3_direct.py`) once an ordinary PUT showed how they reach the bucket.

Conditional PUT (`If-None-Match: *`). `put_if_absent` uses it if the store has it, else looks and then puts. Option
`conditional_put`: "true" and "false" decide; "auto", the default, trusts AWS, and probes other stores once per process and
bucket: it puts a throw-away object `_delta_log/_sluice_probe-<random>` twice, the second time conditionally, and deletes it.
412 means that the store honours the header; success that it ignores it; 400 or 501 that it refuses it. Only overwriting an
existing object distinguishes the first two, hence the probe; every Delta reader skips its name.

A reply can be lost after the store has written the object. botocore then sends the conditional PUT again and gets a 412 for
our own bytes. So False from `put_if_absent` means "the key exists": a caller who needs to know more compares.
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
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

import boto3
import boto3.s3.transfer
import botocore
from botocore import exceptions as boto
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.httpsession import get_cert_path
from botocore.session import Session, get_session
from urllib3 import HTTPConnectionPool

from ...installation import __version__
from ..arguments import check_folder, check_key
from ..constants import PROBE_PREFIX
from ..errors import AccessDenied, InvalidRequest, NoSuchBucket, ObjectNotFound, SluiceError, StorageFull, StorageUnavailable
from ..observing import observed
from .objects import DELETION_S, ObjectInfo, ObjectStore, Unfinished, send_deletion
from .s3_direct import ALREADY, STORED, Credentials, Route, put_directly
from .storage_options import StorageOptions, redact_logs
from .streams import MultipartSink, RangeSource, finished, just_before, milliseconds

_DENIED = "check the credentials and what they allow (for a missing object S3 denies, too, unless listing is allowed)"
_ERRORS: dict[str, tuple[type[SluiceError], str]] = {
    "NoSuchBucket": (NoSuchBucket, "there is no such bucket; create it, or check the endpoint"),
    "NoSuchKey": (ObjectNotFound, "there is no such object"),
    "404": (ObjectNotFound, "there is no such object"),
    "NotFound": (ObjectNotFound, "there is no such object"),
    "PreconditionFailed": (ObjectNotFound, "the object was replaced while it was read"),
    "AccessDenied": (AccessDenied, _DENIED),
    "403": (AccessDenied, _DENIED),
    "AllAccessDisabled": (AccessDenied, _DENIED),
    "InvalidAccessKeyId": (AccessDenied, "the store does not know the access key; check access_key_id and the endpoint"),
    "SignatureDoesNotMatch": (AccessDenied, "the secret does not belong to the access key; check secret_access_key"),
    "ExpiredToken": (AccessDenied, "the session token has expired; get a new one"),
    "InvalidToken": (AccessDenied, "the store does not accept the session token; get a new one"),
    "RequestTimeTooSkewed": (AccessDenied, "this machine's clock is wrong; set it"),
    "AuthorizationHeaderMalformed": (InvalidRequest, "the region is probably wrong; set the option region"),
    "PermanentRedirect": (InvalidRequest, "the bucket is in another region; set the option region"),
    "NotImplemented": (InvalidRequest, "the store lacks a function; if it has no conditional PUT, set the option conditional_put to false"),
    "QuotaExceeded": (StorageFull, "the quota is used up; free some space and repeat"),
    "XMinioStorageFull": (StorageFull, "the store is full; free some space and repeat"),
    "InsufficientStorage": (StorageFull, "the store is full; free some space and repeat"),
    "RequestTimeout": (StorageUnavailable, "the store did not get the request in time"),
    "IncompleteBody": (StorageUnavailable, "the store did not get the whole request"),
}


def meaning(code: str, status: int) -> tuple[type[SluiceError], str]:
    """Class and remedy for an error after all retries; the status decides for an unknown code: what may pass is StorageUnavailable."""
    if code in _ERRORS:
        return _ERRORS[code]
    if status == 507:
        return _ERRORS["InsufficientStorage"]
    passing = (status >= 500 and status != 501) or status in (409, 429)
    return (StorageUnavailable if passing else InvalidRequest), "the store refused the request"


_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 60
_CONNECTIONS = 64
_CONFLICT_ATTEMPTS = 8
_CONFLICT_WAIT_S = 0.05
_BODY_ATTEMPTS = 4
_AT_ONCE_BYTES = 1 << 20
_COPIED_WHOLE_BYTES = 1 << 30
_COPIED_PART_BYTES = 256 << 20
"""The store copies up to 5 GiB in one request; parts are faster long before."""
_BEFORE_SEND = "before-send.s3.PutObject"
_PASSING = (409, 429)
"""Refusals that do not depend on how a request was made."""

_ENVIRONMENT = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE")
"""Variables that botocore reads when a client is made: a changed value needs a new client."""


_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
    boto.ProfileNotFound,
)


_ClientKey = tuple[StorageOptions, tuple[str | None, ...]]


class _Shared:
    """State shared by the stores of this process.

    A forked child makes its own: connections cannot be shared, and a thread that does not exist there may hold the lock.
    """

    def __init__(self) -> None:
        self.conditional: dict[tuple[str, str], bool] = {}
        self.reset()
        os.register_at_fork(after_in_child=self.begin_again)

    def reset(self) -> None:
        self.clients: dict[_ClientKey, tuple[Any, _Puts]] = {}
        self.lock = threading.Lock()

    def begin_again(self) -> None:
        """In a forked process: leave the parent's connections alone.

        A pool of connections that is collected closes them, and takes the lock of its queue for that.
        """
        for each in list(getattr(weakref.finalize, "_registry", ())):
            alive = each.peek()
            if alive is not None and getattr(alive[1], "__module__", "") == "urllib3.connectionpool":
                each.detach()
        self.reset()

    def client(self, key: _ClientKey) -> tuple[Any, _Puts]:
        if key not in self.clients:
            with self.lock:
                if key not in self.clients:
                    self.clients[key] = _make_client(key[0])
        return self.clients[key]


class _Puts:
    """The PUTs of one client: direct if possible, learning from the ordinary ones. Thread-safe; not to be used in a forked process."""

    def __init__(self, client: Any, credentials: Callable[[], Credentials | None], trusted: Callable[[], ssl.SSLContext]) -> None:
        """`credentials` returns the current ones, `trusted` the accepted certificates, both as in the ordinary client."""
        self._events = client.meta.events
        self._credentials, self._trusted = credentials, trusted
        self._ways: dict[str, tuple[Route, HTTPConnectionPool] | None] = {}  # by bucket; None: all its PUTs are the ordinary client's
        self._seen = threading.local()
        self._events.register_last(_BEFORE_SEND, self._look)

    def put(self, bucket: str, key: str, data: bytes | BinaryIO, ordinary: Callable[[], object], *, absent: bool) -> bool:
        """Whether this call stored the object: False only with `absent`, if one exists. Raises the errors of the ordinary way."""
        status, way = None, self._ways.get(bucket)
        if isinstance(data, bytes) and len(data) <= _AT_ONCE_BYTES and way is not None:
            status = put_directly(*way, key, data, self._credentials(), absent=absent)
            if status == STORED or (status == ALREADY and absent):
                return status == STORED
        self._seen.request = None
        ordinary()
        if bucket not in self._ways:
            self._ways[bucket] = self._way(key)
        elif status is not None and status not in _PASSING and status < 500:
            self._ways[bucket] = None  # refused, although the ordinary client succeeds
        return True

    def _way(self, key: str) -> tuple[Route, HTTPConnectionPool] | None:
        """The way of the ordinary PUT that stored the object of this key, as the model for others to the bucket."""
        request, self._seen.request = self._seen.request, None
        if request is None or any(answer is not None for _, answer in self._events.emit(_BEFORE_SEND, request=request)):
            return None  # hooks may answer in place of the store
        route = Route.of(str(request.url), cast(Mapping[str, str], request.headers), key, self._credentials())
        return None if route is None else (route, route.connections(self._trusted))

    def _look(self, request: Any, **_: Any) -> None:
        self._seen.request = request


_shared = _Shared()


def _make_client(options: StorageOptions) -> tuple[Any, _Puts]:
    path_style = options.path_style if options.path_style is not None else options.endpoint_url is not None
    session = get_session()
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        max_pool_connections=_CONNECTIONS,
        tcp_keepalive=True,
        signature_version="s3v4",  # otherwise requests signed in advance have the signature that new buckets refuse
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        s3={"addressing_style": "path" if path_style else "auto"},
        # other stores often refuse the newer checksums; TLS and the ETag protect the data anyhow
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        parameter_validation=False,
        # botocore's own form, built once: botocore builds it twice per request
        user_agent=f"sluice/{__version__} Boto3/{boto3.__version__} Botocore/{botocore.__version__} Python/{platform.python_version()}",
    )
    client = boto3.Session(botocore_session=session).client(
        "s3",
        endpoint_url=options.endpoint_url,
        region_name=options.region or session.get_config_variable("region") or ("us-east-1" if options.endpoint_url else None),
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
        aws_session_token=options.session_token,
        config=config,
    )
    client.meta.events.register_last("before-call.s3.PutObject", _send_at_once)
    redact_logs()  # every library with loggers is imported by now
    return client, _Puts(client, partial(_credentials, session, options), partial(_trusted, session))


def _credentials(session: Session, options: StorageOptions) -> Credentials | None:
    """The current credentials: from the options, or found and refreshed by botocore."""
    if options.access_key_id is not None and options.secret_access_key is not None:
        return Credentials(options.access_key_id, options.secret_access_key, options.session_token)
    found: Any = session.get_credentials()
    if found is None:
        return None
    now = found.get_frozen_credentials()
    return Credentials(now.access_key, now.secret_key, now.token)


def _trusted(session: Session) -> ssl.SSLContext:
    """The certificates that the client accepts."""
    bundle: Any = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or True
    path = Path(str(get_cert_path(bundle)))
    return ssl.create_default_context(capath=path) if path.is_dir() else ssl.create_default_context(cafile=path)


def _send_at_once(params: dict[str, Any], **_: Any) -> None:
    """Send a small body together with its headers: botocore would first ask the server, which costs a round trip per PUT."""
    body = params.get("body")
    if isinstance(body, io.BytesIO) and body.getbuffer().nbytes <= _AT_ONCE_BYTES:
        params["body"] = body.getvalue()
        params["headers"].pop("Expect", None)


@observed("store", _request="", _read="get", put="put", _put_conditionally="put")
class S3Store:
    """An ObjectStore in a bucket. `location` is normalised: `s3://bucket/path`. The first verb sends the first request."""

    def __init__(self, location: str, options: StorageOptions | None = None) -> None:
        self.location = location
        self._options = (options or StorageOptions()).resolved()
        self._endpoint = self._options.endpoint_url or "AWS"
        self._bucket, _, path = location.removeprefix("s3://").partition("/")
        self._root = f"{path}/" if path else ""
        self._client_key: _ClientKey = (self._options, tuple(os.environ.get(name) for name in _ENVIRONMENT))

    def __repr__(self) -> str:
        return f"S3Store({self.location!r}, endpoint_url={self._options.endpoint_url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (S3Store, (self.location, self._options))

    def elsewhere(self, uri: str) -> tuple[S3Store, str] | None:
        """The store of an object's bucket outside this store, with the same options, and its key there."""
        if not uri.startswith("s3://"):
            return None
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return S3Store(f"s3://{bucket}", self._options), key

    @property
    def _client(self) -> Any:
        """This process's client for these options and this environment."""
        return _shared.client(self._client_key)[0]

    @contextmanager
    def _our_errors(self, key: str) -> Iterator[None]:
        """Raises our errors for botocore's. Neither of them repeats credentials."""
        uri, endpoint = f"{self.location}/{key}", self._endpoint
        try:
            yield
        except boto.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            message = str(error.response.get("Error", {}).get("Message", ""))
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            kind, remedy = meaning(code, status)
            raise kind(f"{uri}: {remedy} ({code}: {message}; endpoint {endpoint})", uri=uri, code=code, status=status) from error
        except _NO_CREDENTIALS as error:
            remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the options access_key_id and secret_access_key"
            raise AccessDenied(f"{uri}: no usable credentials: {error}; {remedy}", uri=uri) from error
        except boto.BotoCoreError as error:
            if isinstance(error, boto.HTTPClientError) and isinstance(inner := error.kwargs.get("error"), SluiceError):
                raise inner from error  # the error of reading the body, which botocore takes for a broken connection
            raise StorageUnavailable(f"{uri}: cannot reach the store at {endpoint}: {error}", uri=uri, endpoint=endpoint) from error

    def _request(self, verb: str, about: str, **parameters: Any) -> dict[str, Any]:
        with self._our_errors(about):
            return cast(dict[str, Any], getattr(self._client, verb)(Bucket=self._bucket, **parameters))

    def _call(self, verb: str, key: str, **parameters: Any) -> dict[str, Any]:
        """One request for an object."""
        return self._request(verb, key, Key=self._root + check_key(key), **parameters)

    def _put(self, key: str, data: bytes | BinaryIO, *, absent: bool) -> bool:
        """One PUT, with botocore's errors. False with `absent` if the store says that the object exists."""
        client, puts = _shared.client(self._client_key)
        name, conditions = self._root + check_key(key), {"IfNoneMatch": "*"} if absent else {}
        ordinary = partial(client.put_object, Bucket=self._bucket, Key=name, Body=data, **conditions)
        return puts.put(self._bucket, name, data, ordinary, absent=absent)

    def _read(self, key: str, range_header: str | None = None, version: str = "") -> tuple[bytes, dict[str, Any]]:
        """Body and reply of a GET, of a specific version of the object if given; a body that breaks off is fetched again."""
        parameters = {"Range": range_header} if range_header else {}
        if version:
            # check: ranges-are-of-one-version
            parameters["IfMatch"] = version
        for attempt in range(_BODY_ATTEMPTS):
            reply = self._call("get_object", key, **parameters)
            try:
                with self._our_errors(key):
                    return reply["Body"].read(), reply
            except StorageUnavailable:
                if attempt == _BODY_ATTEMPTS - 1:
                    raise
                _pause(attempt)
        raise AssertionError("unreachable")

    def get(self, key: str) -> bytes:
        return self._read(key)[0]

    def get_range(self, key: str, offset: int, length: int, version: str = "") -> bytes:
        """Up to `length` bytes from `offset`, of this version of the object if given; fewer at its end. Raises ObjectNotFound."""
        if length == 0:
            self.head(key)
            return b""
        try:
            return self._read(key, f"bytes={offset}-{offset + length - 1}", version)[0]
        except InvalidRequest as error:
            if error.details.get("code") == "InvalidRange":  # begins at or beyond the end
                return b""
            raise

    def _tail(self, key: str, length: int) -> tuple[bytes, int, str]:
        """Up to `length` last bytes, the object's size, and its ETag ("" for none, or one that conditions cannot use)."""
        try:
            data, reply = self._read(key, f"bytes=-{length}")
        except InvalidRequest as error:
            if error.details.get("code") == "InvalidRange":  # an empty object has no last bytes
                return b"", 0, ""
            raise
        _, _, size = str(reply.get("ContentRange", "")).rpartition("/")
        etag = str(reply.get("ETag") or "")
        # without the header, the body is the whole object
        return data, int(size) if size.isdigit() else len(data), "" if etag.startswith("W/") else etag

    def open_input(self, key: str) -> BinaryIO:
        """A seekable binary input stream for reading by ranges, all from one version of the object. Raises ObjectNotFound."""
        return cast(BinaryIO, RangeSource(partial(self._tail, key), partial(self.get_range, key)))

    def head(self, key: str) -> ObjectInfo:
        try:
            reply = self._call("head_object", key)
        except ObjectNotFound:
            self._read(key, "bytes=0-0")  # unlike a HEAD, a GET says whether the bucket is missing
            raise
        return ObjectInfo(key, reply["ContentLength"], milliseconds(reply["LastModified"]))

    def put(self, key: str, data: bytes) -> None:
        with self._our_errors(key):
            self._put(key, data, absent=False)

    def copy_from(self, source: ObjectStore, source_key: str, key: str) -> bool:
        """By one request of the store, or one for each part of a large object; only with the options that reach both."""
        if not isinstance(source, S3Store) or source._options != self._options:
            return False
        origin = {"Bucket": source._bucket, "Key": source._root + check_key(source_key)}
        parts = boto3.s3.transfer.TransferConfig(
            multipart_threshold=_COPIED_WHOLE_BYTES, multipart_chunksize=_COPIED_PART_BYTES, max_concurrency=4
        )
        self._call("copy", key, CopySource=origin, Config=parts)
        return True

    @property
    def atomic_put_if_absent(self) -> bool:
        """Whether the store has conditional PUT; with "auto", the first call finds out (see the module's docstring)."""
        if self._options.conditional_put != "auto":
            return self._options.conditional_put == "true"
        bucket = (self._endpoint, self._bucket)
        is_conditional = _shared.conditional.get(bucket)
        if is_conditional is None:
            is_aws = (urlsplit(str(self._client.meta.endpoint_url)).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
            is_conditional = _shared.conditional[bucket] = is_aws or self._probe()
        return is_conditional

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
                _log.warning("the probe object %s/%s was left behind: %s", self.location, key, error)

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """False means that the key exists, perhaps with our own bytes after a lost reply."""
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
                data.seek(0)  # botocore sends from the current position
            with self._our_errors(key):
                try:
                    return self._put(key, data, absent=True)
                except boto.ClientError as error:
                    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
                    if status == 412:
                        return False
                    if status != 409 or attempt == _CONFLICT_ATTEMPTS - 1:  # 409: another PUT of the key is in progress
                        raise
            _pause(attempt)
        raise AssertionError("unreachable")

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFound):
            self._call("delete_object", key)

    @contextmanager
    def prepared_deletion(self, key: str) -> Iterator[Callable[[], None]]:
        """A function that sends a request signed now, which the store refuses when `DELETION_S` have passed."""
        place = {"Bucket": self._bucket, "Key": self._root + check_key(key)}
        with self._our_errors(key):
            url = str(self._client.generate_presigned_url("delete_object", Params=place, ExpiresIn=DELETION_S))
        yield partial(send_deletion, f"{self.location}/{key}", self._options.max_attempts, partial(self._delete_signed, url))

    def _delete_signed(self, url: str) -> tuple[int, bytes]:
        try:
            answer = self._client._endpoint.http_session.send(AWSRequest("DELETE", url).prepare())
        except boto.BotoCoreError as error:
            return 0, str(error).encode()
        return answer.status_code, answer.content

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        call = partial(self._call, key=check_key(key))
        return finished(MultipartSink(f"{self.location}/{key}", call, partial(self.put, key), partial(self.head, key)))

    def unfinished(self) -> Iterator[Unfinished]:
        """Multipart uploads that were begun, but neither completed nor aborted, in no order."""
        parameters = {"Prefix": self._root}
        while True:
            page = self._request("list_multipart_uploads", "", **parameters)
            for each in page.get("Uploads", ()):
                yield Unfinished(str(each["Key"])[len(self._root) :], str(each["UploadId"]), milliseconds(each["Initiated"]))
            if not page.get("IsTruncated"):
                return
            parameters |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def abandon(self, upload: Unfinished) -> None:
        try:
            self._call("abort_multipart_upload", upload.key, UploadId=upload.token)
        except InvalidRequest as error:
            if error.details.get("code") != "NoSuchUpload":
                raise

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        parameters: dict[str, Any] = {"Prefix": self._root + check_folder(prefix)}
        if not recursive:
            parameters["Delimiter"] = "/"
        if start:
            parameters["StartAfter"] = self._root + just_before(start)
        last = ""
        while True:
            page = self._request("list_objects_v2", prefix, **parameters)
            for found in page.get("Contents", ()):
                if found["Key"].endswith("/"):  # consoles make objects that represent folders
                    continue
                key = str(found["Key"])[len(self._root) :]
                if key < last:
                    raise InvalidRequest(f"{self.location}: the bucket lists {key!r} after {last!r}; sluice needs one that lists in order")
                last = key
                if key >= start:
                    yield ObjectInfo(key, found["Size"], milliseconds(found["LastModified"]))
            if not page.get("IsTruncated"):
                return
            parameters["ContinuationToken"] = page["NextContinuationToken"]


def _pause(attempt: int) -> None:
    time.sleep(random.uniform(0.5, 1.0) * _CONFLICT_WAIT_S * 2**attempt)  # noqa: S311 (jitter is no secret)
