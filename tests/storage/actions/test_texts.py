"""Texts that are read in pieces say the same as their bytes."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.storage.actions import texts
from sluice.storage.actions.texts import LongText, concatenated, lines, pieces, put_text, sha256, stored_text, stream_of
from sluice.storage.errors import BadChecksum
from tests.storage.logs import new_store


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "PIECE_BYTES", 7)


def long_text(content: bytes, before: bytes = b"") -> LongText:
    store = new_store()
    store.put("text", content)
    text = concatenated([before, stored_text(store, "text")])
    assert isinstance(text, LongText)
    return text


@given(st.lists(st.binary(max_size=20)), st.integers(1, 9))
def test_lines_are_those_of_the_bytes(parts: list[bytes], size: int) -> None:
    class Pieces:
        def __len__(self) -> int:
            return len(content)

        def pieces(self):  # type: ignore[no-untyped-def]
            return (content[at : at + size] for at in range(0, len(content), size))

    content = b"\n".join(parts)
    assert list(lines(LongText((b"a\nb", Pieces())))) == (b"a\nb" + content).split(b"\n")
    assert list(lines(content)) == content.split(b"\n")


def test_a_small_text_is_its_bytes() -> None:
    store = new_store()
    store.put("text", b"a few")
    assert concatenated([b"of ", stored_text(store, "text")]) == b"of a few"


def test_a_long_text_is_read_in_pieces(short_pieces: None) -> None:
    text = long_text(b"0123456789" * 3, b"begin ")
    assert b"".join(pieces(text)) == b"begin " + b"0123456789" * 3
    assert max(map(len, pieces(text))) == 7
    assert len(text) == 36
    assert sha256(text) == hashlib.sha256(b"begin " + b"0123456789" * 3).hexdigest()
    copy = new_store()
    put_text(copy, "copy", text)
    assert copy.get("copy") == b"begin " + b"0123456789" * 3


def test_a_stream_of_a_text_can_be_read_again_and_from_anywhere(short_pieces: None) -> None:
    content = bytes(range(100))
    stream = stream_of(long_text(content), hashlib.sha256(content).hexdigest())
    assert stream.seek(0, io.SEEK_END) == 100
    stream.seek(0)
    assert stream.read() == content
    stream.seek(90)
    assert stream.read(5) == content[90:95]
    stream.seek(3)
    assert stream.read() == content[3:]
    assert stream.read() == b""


def test_a_stream_of_a_text_that_changed_never_ends(short_pieces: None) -> None:
    stream = stream_of(long_text(bytes(100)), hashlib.sha256(bytes(99) + b"x").hexdigest())
    with pytest.raises(BadChecksum):
        stream.read()


def test_an_object_that_became_shorter_is_noticed(short_pieces: None) -> None:
    store = new_store()
    store.put("text", bytes(30))
    text = stored_text(store, "text")
    store.put("text", bytes(20))
    with pytest.raises(BadChecksum, match="shorter"):
        sha256(text)
