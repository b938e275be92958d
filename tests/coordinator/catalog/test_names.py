"""What may be a name, and which spellings are one name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.coordinator.catalog.names import NAME_CHARACTERS_MAX, TableName, check_namespace
from sluice.coordinator.errors import InvalidName


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("sales.orders", "sales", "orders"),
        ("Sales.Orders", "Sales", "Orders"),
        ("orders", "default", "orders"),
        ("`sales`.`orders`", "sales", "orders"),
        ("`sales`.orders", "sales", "orders"),
        ("raw_2026.a-b", "raw_2026", "a-b"),
        ("Verkäufe.Aufträge", "Verkäufe", "Aufträge"),
        ("sales.\u0061\u0308pfel", "sales", "äpfel"),
        ("1.2", "1", "2"),
    ],
)
def test_a_name_has_a_namespace_and_keeps_its_spelling(text: str, namespace: str, name: str) -> None:
    assert TableName.parse(text) == TableName(namespace, name)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not the name of a table"),
        (None, "is not the name of a table"),
        (3, "is not the name of a table"),
        ("a.b.c", "has 3 parts.*leave 'a' out"),
        ("a.b.c.d", "has 4 parts"),
        ("a.", "the name of the table is empty"),
        (".a", "the name of the namespace is empty"),
        (".", "is empty"),
        ("``", "is empty"),
        ("a b", "the character ' '"),
        ("a.b/c", "the character '/'"),
        ("a.`b.c`", r"the character '\.'"),
        ("a.b`c`", "backtick"),
        ("`a`b.c", "backtick"),
        ("a.b\0", "the character"),
        ("a.😀", "the character"),
        ("x" * (NAME_CHARACTERS_MAX + 1), "129 characters"),
        ("delta.orders", "no namespace can be called 'delta'"),
        ("PARQUET.orders", "no namespace can be called"),
        ("global_temp.view", "temporary views"),
        ("information_schema.tables", "SQL reserves it"),
    ],
)
def test_what_is_no_name_is_refused_with_the_rule(text: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        TableName.parse(text)


def test_the_longest_name_is_one() -> None:
    assert TableName.parse(f"sales.{'x' * NAME_CHARACTERS_MAX}").name == "x" * NAME_CHARACTERS_MAX
    assert check_namespace("y" * NAME_CHARACTERS_MAX)


@given(st.text(alphabet=st.characters(categories=("L", "N")), min_size=1, max_size=20))
def test_spellings_that_differ_in_case_only_are_one_name(name: str) -> None:
    given_name = TableName.parse(f"sales.{name}")
    assert TableName.parse(f"SALES.{given_name.name.lower()}").path == given_name.path
    assert "/" not in given_name.path.removeprefix("/catalog/namespaces/sales/")
    assert TableName.parse(str(given_name)) == given_name
