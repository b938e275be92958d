"""The meaning of S3's error codes: our exception class and a remedy for its message."""

from __future__ import annotations

from ..errors import AccessDenied, InvalidRequest, NoSuchBucket, ObjectNotFound, SluiceError, StorageFull, StorageUnavailable

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
    """Class and remedy for an error code and HTTP status after all retries.

    For an unknown code the status decides: an error that may pass is StorageUnavailable.
    """
    if code in _ERRORS:
        return _ERRORS[code]
    if status == 507:
        return _ERRORS["InsufficientStorage"]
    passing = (status >= 500 and status != 501) or status in (409, 429)
    return (StorageUnavailable if passing else InvalidRequest), "the store refused the request"
