from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from sluice.storage.actions import DeletionVector
from sluice.storage.data.vectors import (
    INLINE_BYTES_MAX,
    Rows,
    decode_payload,
    encode_payload,
    plan_vector,
    positions_of,
    read_vector,
    rows_at,
    vector_key,
)
from sluice.storage.errors import BadChecksum, Corrupt, MissingObject, UnsupportedFeature
from sluice.storage.stores.memory import MemoryStore
from tests.storage.logs import new_store
from tests.storage.strategies import unhurried

OWNER = "7f3c2a9e-10c5-4f0e-8a51-4a3f0b1c2d3e"
MANY = Rows(range(0, 100_000, 7))

# Files hold runs, single rows and, in theory, more rows than 32 bits can count.
POSITIONS = st.integers(0, 300) | st.integers(0, 2**33) | st.integers(0, 2**63 - 1)
RUNS = st.tuples(POSITIONS, st.integers(1, 5000)).map(lambda run: range(run[0], min(run[0] + run[1], 2**63)))
SETS = st.tuples(st.sets(POSITIONS, max_size=40), st.lists(RUNS, max_size=3)).map(lambda parts: set(parts[0]).union(*parts[1]))


def store_with(rows: Rows) -> tuple[MemoryStore, DeletionVector]:
    """A store with a vector of these rows."""
    store = new_store()
    vector, stored = plan_vector(rows, owner=OWNER)
    if stored is not None:
        assert stored[0] == vector_key(vector)
        store.put(*stored)
    return store, vector


@unhurried
@given(SETS)
def test_a_payload_says_which_rows_and_nothing_of_how_they_came_together(positions: set[int]) -> None:
    ordered = sorted(positions)
    payload = encode_payload(Rows(ordered))
    assert list(decode_payload(payload)) == ordered
    piecemeal = Rows(ordered + [2**62 + number for number in range(100)])
    for start in range(0, len(ordered), 777):
        piecemeal |= Rows(ordered[start : start + 777])
    piecemeal -= Rows(position for position in range(2**62, 2**62 + 100) if position not in positions)
    assert encode_payload(piecemeal) == payload


@unhurried
@given(SETS.filter(bool))
def test_what_was_planned_and_put_is_read(positions: set[int]) -> None:
    store, vector = store_with(Rows(positions))
    assert read_vector(store, vector) == Rows(positions)
    assert vector.cardinality == len(positions)
    assert (vector.storage_type == "i") == (vector.size_in_bytes <= INLINE_BYTES_MAX)


@unhurried
@given(st.lists(st.integers(0, 2**62), max_size=50), st.integers(0, 9), st.integers(0, 9))
def test_positions_in_arrow_and_back(positions: list[int], start: int, length: int) -> None:
    assert positions_of(Rows(positions)).to_pylist() == sorted(set(positions))
    array = pa.array(positions, pa.int64())
    assert rows_at(array.slice(start, length)) == Rows(positions[start : start + length])
    assert rows_at(pa.chunked_array([array, array.slice(start)])) == Rows(positions)


def test_the_layout_is_the_protocols() -> None:
    """Byte by byte as "Deletion Vector Format" has it, from nothing but the standard library."""
    # A 32-bit bitmap of one container, for key 0, which holds one value, 0, at byte 16.
    one = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, 0) + struct.pack("<I", 16) + struct.pack("<H", 0)
    payload = struct.pack("<I", 1681511377) + struct.pack("<q", 2) + struct.pack("<i", 0) + one + struct.pack("<i", 3) + one
    assert encode_payload(Rows([0, 3 * 2**32])) == payload
    vector, stored = plan_vector(MANY, owner=OWNER)
    assert stored is not None
    key, content = stored
    assert content[:1] == b"\x01"
    assert struct.unpack(">i", content[1:5]) == (vector.size_in_bytes,)
    assert struct.unpack(">I", content[-4:]) == (zlib.crc32(content[5:-4]),)
    assert (vector.offset, len(content)) == (1, vector.size_in_bytes + 9)
    assert key.startswith(f"{OWNER}/deletion_vector_")


def test_the_uuid_is_in_the_descriptor_as_the_protocols_example_has_it() -> None:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)
    assert vector_key(vector) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert (
        vector_key(replace(vector, path_or_inline_dv="^-aqEH.-t@S}K{vb[*k^")) == "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )


def test_the_file_of_another_writer_is_read() -> None:
    """The file that Spark wrote for the golden table `table-with-dv-small`, whose rows 0 and 9 are gone."""
    content = bytes.fromhex("0100000024d1d339640100000000000000000000003a300000010000000000010010000000000009002a671846")
    store = new_store()
    key = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin"
    store.put(key, content)
    vector = DeletionVector("u", "vBn[lx{q8@P<9BNH/isA", 36, 2, 1)
    assert vector_key(vector) == key
    assert read_vector(store, vector) == Rows([0, 9])


def native(bitmaps: list[BitMap]) -> bytes:
    parts = [each.serialize() for each in bitmaps]
    return struct.pack("<Ii", 1681511376, len(parts)) + b"".join(struct.pack("<i", len(part)) + part for part in parts)


def test_sparks_own_form_is_read() -> None:
    assert list(decode_payload(native([BitMap([1, 5]), BitMap(), BitMap([7])]))) == [1, 5, 2**33 + 7]
    assert decode_payload(native([])) == Rows()
    whole = native([BitMap([1, 5]), BitMap([7])])
    for end in range(4, len(whole)):
        with pytest.raises(ValueError, match=r"ends|not a roaring bitmap"):
            decode_payload(whole[:end])


def test_whoever_plans_the_same_makes_the_same_and_owners_do_not_share() -> None:
    assert plan_vector(MANY, owner=OWNER) == plan_vector(MANY, owner=OWNER)
    keys = {vector_key(plan_vector(rows, owner=owner)[0]) for rows in (MANY, MANY - Rows([0])) for owner in (OWNER, "other")}
    assert len(keys) == 4


def test_planning_leaves_the_rows_as_they_are() -> None:
    rows = Rows(range(10))
    plan_vector(rows, owner=OWNER)
    assert rows == Rows(range(10))
    with pytest.raises(ValueError, match="empty set of rows"):
        plan_vector(Rows(), owner=OWNER)
    for owner in ("", "a/b", "..", "a b"):
        with pytest.raises(ValueError, match="folder"):
            plan_vector(rows, owner=owner)
    with pytest.raises(ValueError, match="not a position"):
        encode_payload(Rows([2**63]))


def test_every_damage_of_a_stored_vector_is_noticed() -> None:
    store, vector = store_with(MANY)
    key = vector_key(vector)
    assert key is not None
    content = store.get(key)
    for at in (0, 1, 4, 5, 8, 20, len(content) // 2, len(content) - 5, len(content) - 1):
        store.put(key, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(Corrupt):
            read_vector(store, vector)
    for end in (0, 1, 5, len(content) - 1):
        store.put(key, content[:end])
        with pytest.raises(Corrupt, match=r"ends before|begins with nothing"):
            read_vector(store, vector)
    store.put(key, content)
    for wrong in (
        replace(vector, cardinality=3),
        replace(vector, size_in_bytes=3),
        replace(vector, offset=2),
        replace(vector, offset=None),
    ):
        with pytest.raises(Corrupt):
            read_vector(store, wrong)
    store.put(key, content[:-4] + bytes(4))
    with pytest.raises(BadChecksum, match="checksum"):
        read_vector(store, vector)
    store.delete(key)
    with pytest.raises(MissingObject, match=r"deletion_vector_.* is gone"):
        read_vector(store, vector)


def test_several_vectors_may_share_a_file() -> None:
    store, vector = store_with(MANY)
    key = vector_key(vector)
    assert key is not None
    payload = encode_payload(Rows([3]))
    content = store.get(key)
    store.put(key, content + struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload)))
    assert read_vector(store, vector) == MANY
    assert read_vector(store, replace(vector, offset=len(content), size_in_bytes=len(payload), cardinality=1)) == Rows([3])


def test_every_damage_of_an_inline_vector_is_noticed() -> None:
    store, vector = store_with(Rows([1, 2, 70_000]))
    text = vector.path_or_inline_dv
    assert vector.storage_type == "i"
    short = DeletionVector("i", text[:-5], vector.size_in_bytes, 3)
    for wrong in (
        short,
        replace(vector, path_or_inline_dv=text + "x"),
        replace(vector, path_or_inline_dv="~" + text[1:]),
        replace(vector, path_or_inline_dv="é" + text[1:]),
        replace(vector, path_or_inline_dv="#####" + text[5:]),
        replace(vector, path_or_inline_dv="00000" + text[5:]),
        replace(vector, path_or_inline_dv="", size_in_bytes=0),
        replace(vector, cardinality=4),
        replace(vector, storage_type="x"),
        replace(vector, storage_type="u", path_or_inline_dv="short"),
        replace(vector, storage_type="u", path_or_inline_dv="../" + "0" * 20),
    ):
        with pytest.raises(Corrupt, match=r"deletion vector .* cannot be read: .*; restore it"):
            read_vector(store, wrong)


def test_an_absolute_path_is_followed() -> None:
    store, vector = store_with(MANY)
    inside = DeletionVector("p", f"{store.location}/{vector_key(vector)}", vector.size_in_bytes, vector.cardinality, 1)
    assert read_vector(store, inside) == MANY
    assert vector_key(inside, store.location) == vector_key(vector)
    other = MemoryStore.open("the-clone-of-a-table")
    assert read_vector(other, inside) == MANY
    assert vector_key(inside, other.location) is None
    with pytest.raises(UnsupportedFeature, match="lies outside of the table"):
        read_vector(store, replace(inside, path_or_inline_dv="file:///elsewhere/v.bin"))
    with pytest.raises(ValueError, match="location"):
        vector_key(inside)
