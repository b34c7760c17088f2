"""The pool of page-locked blocks, on a device that is none."""

from __future__ import annotations

from onnxplug.contract.staging import LARGEST, SMALLEST, Staging


def test_staging_blocks_are_taken_again_when_the_device_has_read_them() -> None:
    passed: set[int] = set()
    made: list[int] = []
    pool = Staging(lambda size: made.append(size) or len(made), lambda mark: mark in passed, budget=4 * SMALLEST)
    assert Staging.size_class(LARGEST + 1) is None and Staging.size_class(1) == SMALLEST
    assert Staging.size_class(SMALLEST + 1) == 2 * SMALLEST
    taken = [pool.take(10), pool.take(SMALLEST), pool.take(SMALLEST + 1)]
    assert taken == [(SMALLEST, 1), (SMALLEST, 2), (2 * SMALLEST, 3)]
    assert pool.take(1) is None  # the budget is spent: the copy goes straight
    for mark, (size, block) in enumerate(t for t in taken if t is not None):
        pool.give(size, block, mark)
    assert pool.take(1) is None
    passed.add(0)
    assert pool.take(1) == (SMALLEST, 1) and len(made) == 3


def test_page_locked_memory_that_the_system_refuses_is_done_without() -> None:
    limit = [SMALLEST]

    def make(nbytes: int) -> bytearray:
        if nbytes > limit[0]:
            raise OSError("out of page-locked memory")
        limit[0] -= nbytes
        return bytearray(nbytes)

    staging = Staging(make, lambda mark: bool(mark), refused=OSError)
    first = staging.take(100)
    assert first is not None and staging.take(100) is None and staging.take(100) is None
    staging.give(*first, mark=True)
    assert staging.take(200) == first
