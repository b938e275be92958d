"""Which types may become wider, the history that a schema keeps of it, and what such a change of metadata is called."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from sluice.storage.actions import Metadata, Protocol
from sluice.storage.actions.features import check_readable, check_writable, features_of_types, widens_types
from sluice.storage.actions.metadata_change import describe, is_harmless
from sluice.storage.errors import UnsupportedFeature
from sluice.storage.schema.conform import conform
from sluice.storage.schema.datatypes import TO_ARROW, ArrayType, DataType, MapType, PrimitiveType, StructField, StructType
from sluice.storage.schema.schema import schema_to_json
from sluice.storage.schema.widening import CHANGES_KEY, unreadable_changes, widened, widens
from tests.fixtures.widenings import PAIRS, VALUES, wide

BOTH = Protocol(3, 7, ("typeWidening",), ("typeWidening",))
PREVIEW = Protocol(3, 7, ("typeWidening-preview",), ("typeWidening-preview",))
DECIMALS = [f"decimal({precision},{scale})" for precision in (1, 9, 10, 11, 19, 20, 21, 38) for scale in (0, 1, 9) if scale <= precision]
WHOLE = ("byte", "short", "integer", "long")


def plain(name: str) -> PrimitiveType:
    return PrimitiveType(name)


def one(dtype: DataType, **metadata: Any) -> StructType:
    return StructType([StructField("c", dtype, metadata=metadata)])


def by_the_protocol(old: str, new: str) -> bool:
    """The list of PROTOCOL.md, once more."""
    if old in WHOLE and new in WHOLE:
        return WHOLE.index(old) < WHOLE.index(new)
    if new == "double":
        return old in ("float", "byte", "short", "integer")
    if (old, new) == ("date", "timestamp_ntz"):
        return True
    if not new.startswith("decimal") or old == new:
        return False
    precision, scale = (int(each) for each in new[8:-1].split(","))
    if old in WHOLE:
        least = 20 if old == "long" else 10
        return precision - least >= scale >= 0
    if not old.startswith("decimal"):
        return False
    p, s = (int(each) for each in old[8:-1].split(","))
    return precision - p >= scale - s >= 0


def test_types_become_wider_as_the_protocol_says() -> None:
    names = [*TO_ARROW, *DECIMALS, "variant"]
    for old, new in itertools.product(names, names):
        assert widens(plain(old), plain(new)) is by_the_protocol(old, new), (old, new)
        by_itself = by_the_protocol(old, new) and not (old in WHOLE and new not in WHOLE)
        assert widens(plain(old), plain(new), by_itself=True) is by_itself, "whole numbers become others only when somebody says it"


def history(*changes: tuple[str, str, str]) -> list[dict[str, str]]:
    return [{"fromType": old, "toType": new, **({"fieldPath": path} if path else {})} for old, new, path in changes]


def test_the_history_is_kept_by_the_nearest_field() -> None:
    inner = StructType([StructField("x", plain("float"))])
    old = MapType(plain("integer"), ArrayType(ArrayType(plain("decimal(6,2)"))))
    before = StructType([StructField("c", old), StructField("s", ArrayType(inner)), StructField("n", plain("byte"))])
    wider = StructType([StructField("x", plain("double"))])
    to = MapType(plain("long"), ArrayType(ArrayType(plain("decimal(10,4)"))))
    after = widened(before, StructType([StructField("C", to), StructField("s", ArrayType(wider)), StructField("z", plain("long"))]))
    assert after.fields[0].type == to
    assert after.fields[0].metadata == {
        CHANGES_KEY: history(("integer", "long", "key"), ("decimal(6,2)", "decimal(10,4)", "value.element.element"))
    }
    field = StructField("x", plain("double"), metadata={CHANGES_KEY: history(("float", "double", ""))})
    assert after.fields[1:] == (StructField("s", ArrayType(StructType([field]))), StructField("n", plain("byte")))
    once = widened(one(plain("byte"), comment="x"), one(plain("short")))
    twice = widened(once, one(plain("decimal(10,0)")))
    assert twice.fields[0].metadata == {"comment": "x", CHANGES_KEY: history(("byte", "short", ""), ("short", "decimal(10,0)", ""))}
    assert widened(twice, one(plain("long"))) == twice, "nothing becomes narrower"


def test_wider_types_are_harmless_for_appends() -> None:
    before = StructType([StructField("c", plain("integer")), StructField("l", ArrayType(plain("float")))])
    to = StructType([StructField("c", plain("long")), StructField("l", ArrayType(plain("double")))])
    after = widened(before, to)

    def metadata(schema: StructType, **configuration: str) -> Metadata:
        return Metadata("id", schema_to_json(schema), (), configuration)

    found = describe(metadata(before), metadata(after))
    assert (found["schema"], is_harmless(found), is_harmless(found, appends=True)) == ("columns", False, True)
    assert json.loads(json.dumps(found)) == found
    switched_on = describe(metadata(before), metadata(after, **{"delta.enableDeletionVectors": "true"}))
    assert is_harmless(switched_on, appends=True)
    for other in (metadata(after, mine="1"), Metadata("other", schema_to_json(after), (), {})):
        assert not is_harmless(describe(metadata(before), other), appends=True)
    assert not is_harmless(describe(metadata(after), metadata(before)), appends=True)


@pytest.mark.notices("types-changed-by-the-protocol")
@pytest.mark.parametrize("protocol", [BOTH, PREVIEW])
def test_a_history_with_a_change_that_the_protocol_lacks_is_refused(protocol: Protocol) -> None:
    metadata = Metadata("id", schema_to_json(one(plain("long"), **{CHANGES_KEY: history(("integer", "long", ""))})), (), {})
    check_readable(protocol, metadata)
    check_writable(protocol, metadata)
    inner = StructType(
        [StructField("x", plain("string"), metadata={CHANGES_KEY: [*history(("byte", "short", ""), ("short", "string", ""))]})]
    )
    strange = Metadata("id", schema_to_json(one(ArrayType(inner))), (), {})
    assert unreadable_changes(one(ArrayType(inner))) == ("c.element.x from short to string",)
    with pytest.raises(UnsupportedFeature, match=r"reading this table needs typeWidening of c\.element\.x from short to string, which"):
        check_readable(protocol, strange)
    check_readable(Protocol(1, 2), strange)


def test_types_become_wider_where_the_property_is_on_and_histories_name_no_versions() -> None:
    on = Metadata("id", schema_to_json(one(plain("long"))), (), {"delta.enableTypeWidening": "true"})
    assert widens_types(BOTH, on)
    both = Protocol(3, 7, ("typeWidening", "typeWidening-preview"), ("typeWidening", "typeWidening-preview"))
    assert not any(widens_types(protocol, on) for protocol in (PREVIEW, both, Protocol(1, 2)))
    assert not widens_types(BOTH, Metadata("id", on.schema_string, (), {}))


def test_moments_without_a_zone_need_their_feature_wherever_they_are() -> None:
    assert features_of_types(one(MapType(plain("long"), ArrayType(plain("timestamp_ntz"))))) == {"timestampNtz"}
    assert features_of_types(one(plain("timestamp"))) == frozenset()


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_who_writes_the_narrower_type_goes_on_doing_so(old: str, new: str) -> None:
    narrow = TO_ARROW.get(old) or pa.decimal128(plain(old).precision, plain(old).scale)
    rows = conform(pa.table({"c": pa.array([*VALUES[old], None], narrow)}), one(plain(new)))
    assert rows["c"].to_pylist() == [*(wide(value, new) for value in VALUES[old]), None]
