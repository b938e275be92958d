"""Objects in containers of Azure storage accounts. The only file that imports obstore, which is an extra.

Retries are obstore's: throttling, 5xx and broken connections, with growing pauses. It repeats a conditional PUT whose answer was lost,
too, so False from `put_if_absent` means "the key exists", perhaps with our own bytes, as in `s3.py`.

obstore answers every 409 to a conditional PUT with "already exists". Azure has several, so its code decides.

A process that was forked from one that used obstore waits forever in it: the threads that would answer exist in the parent only. It
is refused instead.

obstore's errors repeat whole addresses, with signatures, so messages are made of status, code and Azure's own text, and errors
have no cause.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ...installation import install_command
from ..arguments import check_folder, check_key
from ..errors import AccessDenied, InvalidRequest, NoSuchBucket, ObjectNotFound, SluiceError, StorageFull, StorageUnavailable
from ..observing import observed
from .objects import DELETION_S, ObjectInfo, send_deletion
from .storage_options import StorageOptions
from .streams import RangeSource, Sink, finished, just_before, milliseconds

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CONNECT_TIMEOUT_S: Final = 5
_READ_TIMEOUT_S: Final = 60
_REQUEST_TIMEOUT_S: Final = 600
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4
_PAGE: Final = 1000
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~=@,+/-]*")

_STATUS: Final = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_TEXT: Final = re.compile(r"<Message>([^<\n]*)")
_NO_CONTAINER: Final = "The specified container does not exist"
"""What a deletion says, which is a batch of one, in the place of a code."""
_QUERY: Final = re.compile(r"\?[^\s)]*")

_NO_SUCH_CONTAINER: Final = (NoSuchBucket, "there is no such container; create it, or check the account")
_DENIED: Final = (AccessDenied, "check the credentials and what they allow")
_CODES: Final[Mapping[str, tuple[type[SluiceError], str]]] = {
    "ContainerNotFound": _NO_SUCH_CONTAINER,
    "ContainerBeingDeleted": _NO_SUCH_CONTAINER,
    "ConditionNotMet": (ObjectNotFound, "the object was replaced while it was read"),
    "AuthenticationFailed": (AccessDenied, "the account does not accept the key or the signature; check them, and this machine's clock"),
    "AccountIsDisabled": _DENIED,
}
_STATUSES: Final[Mapping[int, tuple[type[SluiceError], str]]] = {
    401: _DENIED,
    403: _DENIED,
    404: (ObjectNotFound, "there is no such object"),
    507: (StorageFull, "the store is full; free some space and repeat"),
}
_PASSING: Final = frozenset({408, 409, 429})


def _error_of(error: Exception, uri: str, endpoint: str) -> SluiceError:
    """Our error for one of obstore's, by the status and code of the last answer; 0 and "" without one."""
    said = str(error).partition("\n\nDebug source")[0]
    status_, code_, text_ = _STATUS.search(said), _CODE.search(said), _TEXT.search(said)
    status = int(status_[1] or status_[2]) if status_ else 0
    code = code_[1] if code_ else "ContainerNotFound" if _NO_CONTAINER in said else ""
    text = text_[1].strip() if text_ else _QUERY.sub("?...", said.partition("\n")[0])
    details: dict[str, Any] = {"uri": uri, "code": code, "status": status}
    if not status and "token" in text:
        remedy = "give azure_secret_key, azure_sas_token or azure_client_id, azure_client_secret and azure_tenant_id"
        return AccessDenied(f"{uri}: no usable credentials ({text}); {remedy}, or set AZURE_STORAGE_...", **details)
    if not status:
        return StorageUnavailable(f"{uri}: cannot reach the store at {endpoint}: {text}", **details)
    passing = (status >= 500 and status != 501) or status in _PASSING
    other = (StorageUnavailable if passing else InvalidRequest), "the store refused the request"
    kind, remedy = _CODES.get(code) or _STATUSES.get(status) or other
    return kind(f"{uri}: {remedy} ({status} {code}: {text}; endpoint {endpoint})", **details)


class _Library:
    """obstore in this process, and its connections by options and environment."""

    def __init__(self) -> None:
        self._package: Any = None
        self._process: int | None = None
        self._connections: dict[object, Any] = {}

    def __call__(self) -> Any:
        """The package. Raises InvalidRequest if it is missing, or cannot be used in this process."""
        if self._process not in (None, os.getpid()):
            raise InvalidRequest(
                "this process was forked from one that used a store of Azure, whose library cannot go on there; start processes by "
                "multiprocessing's methods spawn or forkserver, or use the store in the forked processes only",
                process=self._process,
            )
        if self._package is None:
            try:
                self._package = import_module("obstore")
                import_module("obstore.store")
            except ImportError as error:
                raise InvalidRequest(f"abfss:// needs the package obstore, which is not installed: {install_command('azure')}") from error
        self._process = os.getpid()
        return self._package

    def connection(self, endpoint: str, place: str, options: StorageOptions, environment: object) -> Any:
        """The connection to a container, made once per process, options and environment, which obstore reads."""
        package, key = self(), (place, options, environment)
        if key not in self._connections:
            container, account = _parts(place)
            credentials = {name: getattr(options, f"azure_{name}") for name in ("client_id", "client_secret", "tenant_id")}
            credentials |= {"account_key": options.azure_secret_key, "sas_key": options.azure_sas_token}
            self._connections[key] = package.store.AzureStore(
                container,
                account_name=account,
                endpoint=endpoint,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
                    "read_timeout": f"{_READ_TIMEOUT_S}s",
                    "timeout": f"{_REQUEST_TIMEOUT_S}s",
                },
                retry_config={"max_retries": options.max_attempts - 1},
                **{name: value for name, value in credentials.items() if value is not None},
            )
        return self._connections[key]


_library = _Library()


def _parts(place: str) -> tuple[str, str]:
    """Container and account of `container@account.dfs.core.windows.net`."""
    container, _, host = place.partition("@")
    return container, host.removesuffix(".dfs.core.windows.net")


@observed("store", _call="", _read="get", _listed="list", put_if_absent="put", upload="put")
class AzureStore:
    """An ObjectStore in a container. `location` is normalised: `abfss://container@account.dfs.core.windows.net/path`."""

    atomic_put_if_absent = True
    """Azure has conditional PUT."""

    def __init__(self, location: str, options: StorageOptions | None = None) -> None:
        _library()
        self.location = location
        self._options = options or StorageOptions()
        self._place, _, path = location.removeprefix("abfss://").partition("/")
        self._root = f"{path}/" if path else ""
        self._endpoint = self._options.azure_endpoint_url or f"https://{_parts(self._place)[1]}.blob.core.windows.net"
        self._environment = tuple(item for item in os.environ.items() if item[0].startswith("AZURE_"))

    def __repr__(self) -> str:
        return f"AzureStore({self.location!r}, endpoint={self._endpoint!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (AzureStore, (self.location, self._options))

    def elsewhere(self, uri: str) -> tuple[AzureStore, str] | None:
        """The store and key of an object in another container of this account; another account would learn a signature from the address."""
        place, _, key = uri.removeprefix("abfss://").partition("/")
        if not uri.startswith("abfss://") or place.partition("@")[2] != self._place.partition("@")[2]:
            return None
        return AzureStore(f"abfss://{place}", self._options), key

    def _call(self, verb: str, key: str, *arguments: Any, **parameters: Any) -> Any:
        """One call of obstore for an object, with our errors. Azure takes a backslash for a slash."""
        if "\\" in key:
            raise InvalidRequest(f"{key!r} cannot be the name of an object here: it has a backslash", key=key)
        with self._our_errors(key):
            return getattr(_library(), verb)(self._connection, self._root + check_key(key), *arguments, **parameters)

    @property
    def _connection(self) -> Any:
        return _library.connection(self._endpoint, self._place, self._options, self._environment)

    @contextmanager
    def _our_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except SluiceError:
            raise
        except ValueError:
            raise InvalidRequest(f"{key!r} cannot be the name of an object here", key=key) from None
        except Exception as error:  # noqa: BLE001 (obstore's errors have no common root)
            raise _error_of(error, f"{self.location}/{key}", self._endpoint) from None

    def _read(self, key: str, **options: Any) -> bytes:
        with self._our_errors(key):
            return bytes(self._call("get", key, options=options).bytes())

    def get(self, key: str) -> bytes:
        return self._read(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        try:
            if length:
                return self._range_of(key, offset, length)
        except (InvalidRequest, StorageUnavailable):
            if offset < self.head(key).size:
                raise
            return b""
        self.head(key)
        return b""

    def _range_of(self, key: str, offset: int, length: int, version: str = "") -> bytes:
        return self._read(key, range=(offset, offset + length), **({"if_match": version} if version else {}))

    def _head(self, key: str) -> Mapping[str, Any]:
        try:
            return cast(Mapping[str, Any], self._call("head", key))
        except ObjectNotFound:
            self._read(key, range=(0, 1))  # unlike a HEAD, a GET says whether the container is missing
            raise

    def head(self, key: str) -> ObjectInfo:
        return self._info(self._head(key))

    def _info(self, listed: Mapping[str, Any]) -> ObjectInfo:
        return ObjectInfo(listed["path"][len(self._root) :], listed["size"], milliseconds(listed["last_modified"]))

    def _tail(self, key: str, length: int) -> tuple[bytes, int, str]:
        """Up to `length` last bytes, the object's size, and its ETag. Azure has no ranges that count from the end."""
        listed = self._head(key)
        size, version = int(listed["size"]), str(listed["e_tag"] or "")
        start = max(0, size - length)
        return (self._range_of(key, start, size - start, version) if size else b""), size, version

    def open_input(self, key: str) -> BinaryIO:
        """A seekable binary input stream for reading by ranges, all from one version of the object. Raises ObjectNotFound."""
        return cast(BinaryIO, RangeSource(partial(self._tail, key), partial(self._range_of, key)))

    def put(self, key: str, data: bytes) -> None:
        self._call("put", key, data, mode="overwrite", use_multipart=False)

    def put_if_absent(self, key: str, data: bytes | BinaryIO) -> bool:
        """False means that the key exists, perhaps with our own bytes after a lost reply. A stream is read into memory."""
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        try:
            self._call("put", key, data, mode="create", use_multipart=False)
        except StorageUnavailable as error:
            if error.details["code"] == "BlobAlreadyExists":
                return False
            raise
        return True

    def delete(self, key: str) -> None:
        with suppress(ObjectNotFound):
            self._call("delete", key)

    @contextmanager
    def prepared_deletion(self, key: str) -> Iterator[Callable[[], None]]:
        """A function that sends a request signed now, which the store refuses when `DELETION_S` have passed.

        Azure checks a signature of the address before it is percent-encoded, and obstore signs it after. So what is not plain is deleted
        by an ordinary request within that time: it is a data file, whose name no later table has again. Raises InvalidRequest
        without credentials that can sign: a shared access signature cannot.
        """
        path = self._root + check_key(key)
        if _PLAIN.fullmatch(path):
            with self._our_errors(key):
                url = _library().sign(self._connection, "DELETE", path, timedelta(seconds=DELETION_S))
            yield partial(send_deletion, f"{self.location}/{key}", self._options.max_attempts, partial(_delete_signed, str(url)))
        else:
            yield partial(self._delete_until, time.monotonic() + DELETION_S, key)

    def _delete_until(self, end_s: float, key: str) -> None:
        if time.monotonic() > end_s:
            raise StorageUnavailable(f"{self.location}/{key}: this process was stopped for {DELETION_S} s; repeat the call", key=key)
        self.delete(key)

    def upload(self, key: str) -> AbstractContextManager[BinaryIO]:
        writer = self._call("open_writer", key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        return finished(_Sink(writer, partial(self._our_errors, key)))

    def list_from(self, prefix: str, start: str = "", *, recursive: bool = False) -> Iterator[ObjectInfo]:
        """Sorted here: an account with a hierarchical namespace lists by the parts of names.

        For the same reason only the listing of one folder begins at `start` in the store, too; without `start` it leaves out sub-folders
        there, too.
        """
        listed = [
            each
            for each in self._listed(prefix, start, recursive)
            if each.key >= start and (recursive or "/" not in each.key[len(prefix) :])
        ]
        yield from sorted(listed, key=attrgetter("key"))

    def _listed(self, prefix: str, start: str, recursive: bool) -> list[ObjectInfo]:
        folder = self._root + check_folder(prefix)
        with self._our_errors(prefix):
            if recursive or start > prefix:
                offset = {} if recursive else {"offset": self._root + just_before(start)}
                pages: Iterable[Any] = _library().list(self._connection, folder, chunk_size=_PAGE, **offset)
            else:
                pages = [_library().list_with_delimiter(self._connection, folder)["objects"]]
            return [self._info(each) for page in pages for each in page if each["path"].startswith(folder)]


class _Sink(Sink):
    """Passes writes on to obstore."""

    def __init__(self, writer: Any, our_errors: Callable[[], AbstractContextManager[None]]) -> None:
        self._writer = writer
        self._our_errors = our_errors
        self._aborted = False

    def write(self, data: Buffer, /) -> int:
        """Take all of `data`; raises the error of an earlier part's upload."""
        content = bytes(data)
        if not self._aborted:
            with self._our_errors():
                self._writer.write(content)
        return len(content)

    def finish(self) -> None:
        """Make the object."""
        with self._our_errors():
            self._writer.close()

    def abort(self) -> None:
        """Discard everything: blocks that no list names are forgotten by Azure within a week."""
        self._aborted = True


def _delete_signed(url: str) -> tuple[int, bytes]:
    try:
        with urlopen(Request(url, method="DELETE"), timeout=_READ_TIMEOUT_S) as answer:  # noqa: S310 (obstore made the address)
            return answer.status, b""
    except HTTPError as error:
        with error:
            return error.code, error.read(200)
    except OSError as error:
        return 0, str(error).encode()
