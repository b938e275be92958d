"""Errors are sluice's and Spark's at once: their classes, messages, details, causes, and their way through a pickle."""

from __future__ import annotations

import pickle

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, SparkRuntimeException, StreamingQueryException

import sluice
from sluice.delta import exceptions
from sluice.spark_integration.errors import as_spark_users_know, in_options, known_to_spark
from sluice.spark_integration.streams import Query, Run
from sluice.storage.errors import SluiceError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sluice.errors.PredicateError("x"), AnalysisException),
        (sluice.errors.TableNotFound("x"), AnalysisException),
        (sluice.errors.ConstraintViolated("x"), SparkRuntimeException),
        (sluice.errors.NullNotAllowed("x"), SparkRuntimeException),
        (sluice.errors.ConcurrentAppendException("x"), PySparkException),
        (sluice.errors.CoordinatorUnavailable("x"), PySparkException),
    ],
)
def test_an_error_is_of_both_classes(error: SluiceError, kind: type[PySparkException]) -> None:
    known = known_to_spark(error)
    assert isinstance(known, type(error))
    assert isinstance(known, kind)
    assert type(known) is type(known_to_spark(error)), "one class for each pair"
    assert known.retryable == error.retryable
    assert str(known) == known.getMessage() == "x"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("give overwrite_schema=True, too", "give the option overwriteSchema, too"),
        (
            "overwrite_schema replaces: leave where and dynamic out",
            "overwriteSchema replaces: leave replaceWhere and partitionOverwriteMode out",
        ),
        ("partitioned then, partition_by=[...] ([] for none)", "partitioned then, partitionBy(...), without a column for none"),
    ],
)
def test_a_message_names_options_in_the_place_of_parameters(told: str, says: str) -> None:
    assert in_options(sluice.errors.InvalidRequest(told)).message == says


def test_it_keeps_details_cause_and_class_through_a_pickle() -> None:
    cause = ValueError("below")
    with pytest.raises(sluice.errors.VersionNotFound) as raised, as_spark_users_know():
        raise sluice.errors.VersionNotFound("version 7 is gone", version=7) from cause
    assert raised.value.__cause__ is cause
    raised.value.tell("; look elsewhere", place="x")
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is type(raised.value)
    assert (str(again), again.version, again.place) == ("version 7 is gone; look elsewhere", 7, "x")


def test_a_method_may_call_an_invalid_value_illegal() -> None:
    with pytest.raises(IllegalArgumentException) as raised, as_spark_users_know(IllegalArgumentException):
        raise sluice.errors.InvalidRequest("retain_hours=1")
    assert isinstance(raised.value, sluice.errors.InvalidRequest)
    assert not isinstance(raised.value, AnalysisException)


def test_an_error_that_failed_a_spark_job_comes_back_as_itself() -> None:
    failed = PySparkException("Job aborted.\nsluice.storage.errors.ConstraintViolated: column id has a null\n\tat org.apache")
    with pytest.raises(sluice.errors.ConstraintViolated, match=r"^column id has a null$") as raised, as_spark_users_know():
        raise failed
    assert raised.value.__cause__ is failed


def test_other_errors_pass_unchanged() -> None:
    for error in (KeyError("x"), AnalysisException("no such column"), known_to_spark(sluice.errors.PredicateError("x"))):
        with pytest.raises(type(error)) as raised, as_spark_users_know():
            raise error
        assert raised.value is error


def test_deltas_names_of_conflicts_are_sluices_conflicts() -> None:
    for name in exceptions.__all__:
        assert issubclass(getattr(exceptions, name), sluice.errors.ConcurrentModification)
    assert exceptions.ConcurrentAppendException is sluice.errors.ConcurrentAppendException


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (sluice.errors.TableNotFound("x", name="a.b"), "TABLE_OR_VIEW_NOT_FOUND"),
        (sluice.errors.TableNotFound("x", location="/a"), "PATH_NOT_FOUND"),
        (sluice.errors.TableExists("x", name="a.b", location="/a"), "TABLE_OR_VIEW_ALREADY_EXISTS"),
        (sluice.errors.TableExists("x", location="/a"), "PATH_ALREADY_EXISTS"),
        (sluice.errors.NamespaceNotFound("x", namespace="a"), "SCHEMA_NOT_FOUND"),
        (sluice.errors.InvalidRequest("x", condition="Y"), "Y"),
        (sluice.errors.InvalidRequest("x"), None),
    ],
)
def test_sparks_condition_says_whether_a_name_or_a_path_is_meant(error: SluiceError, condition: str | None) -> None:
    known = known_to_spark(error)
    assert isinstance(known, PySparkException)
    assert known.getCondition() == condition


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
        "java.lang.IllegalStateException: Concurrent update to the log. Multiple streaming jobs detected for 3",
        "Multiple streaming queries are concurrently using /checkpoint/offsets",
    ],
)
def test_of_two_queries_on_one_checkpoint_spark_says_it_in_three_ways(text: str) -> None:
    query = Query.__new__(Query)
    query._run = Run(())
    assert isinstance(query._found(StreamingQueryException(text)), sluice.errors.ConcurrentTransactionException)
    assert query._found(StreamingQueryException("something else failed")) is None
