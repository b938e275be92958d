"""Namespaces and comments: the coordinator's or Spark's."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from ..delta.metrics import frame
from ..spark_integration.session.format_and_options import default_format, is_sluice
from ..sql_plain.definitions import namespaces as plain
from ..sql_plain.place import title
from ..statements.cursor import Name
from ..statements.namespaces import Comment, CreateNamespace, DropNamespace, ShowNamespaces
from .places import place_of
from .spark_request import Asked


def carried_out(asked: Asked, statement: CreateNamespace | DropNamespace | ShowNamespaces | Comment) -> DataFrame:
    """What is Spark's goes there. A new namespace is the coordinator's by USING sluice, or by the session's default format.

    Of a name that both have, Spark's namespace comes first.
    """
    match statement:
        case CreateNamespace():
            if not is_sluice(statement.provider or default_format(asked.spark)):
                return asked.by_spark()
            return frame(asked.spark, plain.create(asked, statement))
        case DropNamespace():
            return frame(asked.spark, plain.drop(asked, statement)) if _is_ours(asked, statement.name) else asked.by_spark()
        case ShowNamespaces():
            ours = plain.show(asked, statement)
            theirs = [(each[0],) for each in asked.by_spark().collect()]
            known = {name.lower() for (name,) in theirs}
            return frame(asked.spark, replace(ours, rows=(*theirs, *(row for row in ours.rows if row[0].lower() not in known))))
    return _comment(asked, statement)


def _comment(asked: Asked, statement: Comment) -> DataFrame:
    if statement.what == "namespace":
        if not _is_ours(asked, statement.target):
            return asked.by_spark()
        return frame(asked.spark, plain.comment_on_namespace(asked, statement))
    if statement.what == "table":
        place = place_of(asked, statement.target)
        return asked.by_spark() if place is None else frame(asked.spark, plain.comment_on_table(asked, statement, place))
    found = plain.split_column(statement.target, lambda name: place_of(asked, name))
    return asked.by_spark() if found is None else frame(asked.spark, plain.comment_on_column(statement, *found))


def _is_ours(asked: Asked, name: Name) -> bool:
    return not asked.spark.catalog.databaseExists(title(name)) and plain.is_known(asked, name)
