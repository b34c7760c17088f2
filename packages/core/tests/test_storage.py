"""Offsets in a slab: storages alive together never overlap, and the slab is not larger than it need be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug.contract.storage import ALIGNMENT, Storage, assign_offsets

LIFETIMES = st.tuples(st.integers(0, 30), st.integers(0, 12))
SIZES = st.one_of(st.integers(0, 300), st.integers(0, 1 << 20), st.sampled_from([ALIGNMENT, ALIGNMENT + 1]))


@st.composite
def storages(draw: st.DrawFn) -> list[Storage]:
    drawn = draw(st.lists(st.tuples(SIZES, LIFETIMES), max_size=40))
    return [Storage(nbytes, first, first + length) for nbytes, (first, length) in drawn]


def rounded(storage: Storage, alignment: int) -> int:
    return -(-max(storage.nbytes, 1) // alignment) * alignment


def meet(a: Storage, b: Storage) -> bool:
    return a.first <= b.last and b.first <= a.last


@given(storages(), st.sampled_from([1, 16, 64, 256]))
@settings(max_examples=300, deadline=None)
def test_storages_alive_together_never_overlap(given_storages: list[Storage], alignment: int) -> None:
    total = assign_offsets(given_storages, alignment)
    for index, a in enumerate(given_storages):
        assert a.offset % alignment == 0 and a.offset >= 0 and a.offset + a.nbytes <= total
        for b in given_storages[:index]:
            if meet(a, b):
                assert a.offset + max(a.nbytes, 1) <= b.offset or b.offset + max(b.nbytes, 1) <= a.offset
    steps = range(max((s.last for s in given_storages), default=0) + 1)
    peak = max((sum(rounded(s, alignment) for s in given_storages if s.first <= t <= s.last) for t in steps), default=0)
    assert peak <= total <= sum(rounded(s, alignment) for s in given_storages)


@given(storages())
@settings(max_examples=50, deadline=None)
def test_the_same_storages_get_the_same_offsets(given_storages: list[Storage]) -> None:
    again = [Storage(s.nbytes, s.first, s.last) for s in given_storages]
    assert assign_offsets(given_storages) == assign_offsets(again)
    assert [s.offset for s in given_storages] == [s.offset for s in again]


@pytest.mark.parametrize("count", [2, 3, 300])
def test_a_chain_needs_two_storages(count: int) -> None:
    chain = [Storage(1000, at, at + 1) for at in range(count)]
    assert assign_offsets(chain) == 2 * 1024


def test_a_gap_between_neighbours_is_used() -> None:
    large, small, gap = Storage(4096, 0, 9), Storage(1024, 0, 3), Storage(512, 4, 9)
    assert assign_offsets([large, small, gap]) == 4096 + 1024 and gap.offset == small.offset


def test_none_at_all() -> None:
    assert assign_offsets([]) == 0
