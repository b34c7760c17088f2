"""The tape that follows sizes: what it records, repeats and decides, recipes on it, and families of signatures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from onnxplug.contract import TensorSpec
from onnxplug.contract.sizes import Size, Tape, computed, greatest, least, portion
from onnxplug_ep_cpu.codegen.families import Family
from onnxplug_ep_cpu.codegen.recipes import KEPT, Recipe, decided, key_of, remembered
from onnxplug_kernels.windows import Windows

SIZES = st.integers(0, 40)


# ---- the tape


def tiling(n: Any, m: Any) -> list[Any]:
    """What a lowering does with sizes: arithmetic, choices, tables."""
    block = max(1, min(n, 8))
    rows = sorted([n, m, 3 * n - m])
    blocks = -(-m // block) if m % 2 else m // block
    strides = tuple(math.prod((n, m, 4)[i:]) for i in range(3))
    table = len(range(n)) if n > 30 else 7
    return [
        block,
        blocks,
        *rows,
        *strides,
        table,
        *divmod(m, block),
        abs(n - m),
        0.5 * n + m / 2,
        n if n else m,
        np.int64(4) * m,
    ]


@given(SIZES, SIZES, SIZES, SIZES)
@examples(max_examples=200, deadline=None)
def test_a_tape_gives_what_plain_numbers_give_or_nothing(n: int, m: int, other_n: int, other_m: int) -> None:
    tape = Tape([n, m])
    made = tiling(*tape.sizes)
    assert [x.value if isinstance(x, Size) else x for x in made] == tiling(n, m)
    tape.close()
    values = tape.repeat([other_n, other_m])
    if values is not None:
        assert [values[x.position] if isinstance(x, Size) else x for x in made] == tiling(other_n, other_m)
    assert tape.repeat([n, m]) is not None


@pytest.mark.parametrize(
    "look",
    [
        lambda n: n == 5,
        lambda n: range(n),
        lambda n: {n: 0},
        lambda n: f"{n}",
        lambda n: [0] * n,
        lambda n: float(n),
        lambda n: np.zeros(n),
        lambda n: np.float32(3) * n,
        lambda n: n * np.ones(2),
    ],
)
def test_whoever_looks_at_a_size_ties_the_tape_to_it(look: Any) -> None:
    tape = Tape([5])
    look(tape.sizes[0])
    assert tape.repeat([5]) is not None and tape.repeat([6]) is None


def test_a_comparison_ties_the_tape_to_its_answer_only() -> None:
    tape = Tape([5])
    assert tape.sizes[0] < 8 and tape.sizes[0] != 1
    assert tape.repeat([7]) is not None and tape.repeat([8]) is None and tape.repeat([1]) is None


@given(SIZES, SIZES, SIZES)
@examples(max_examples=50, deadline=None)
def test_the_smaller_and_the_larger_number_tie_nothing(n: int, m: int, other: int) -> None:
    def made(n: int) -> list[int]:
        return [least(n, m), greatest(m, n), least(n, n + 1), portion(n, m), computed(pow, n, 2)]

    tape = Tape([n])
    found = made(tape.sizes[0])
    values = tape.repeat([other])
    assert values is not None
    assert [values[x.position] if isinstance(x, Size) else x for x in found] == made(other)


def test_where_the_arithmetic_fails_there_is_no_answer() -> None:
    tape = Tape([5])
    assert (12 // tape.sizes[0]).value == 2 and tape.repeat([0]) is None


def test_a_closed_tape_records_nothing() -> None:
    tape = Tape([5])
    tape.close()
    assert tape.sizes[0] + 1 == 6 and tape.sizes[0] < 9 and tape.repeat([99]) is not None


def test_sizes_of_another_tape_are_numbers() -> None:
    old, new = Tape([3]), Tape([5])
    old.close()
    total = new.sizes[0] + old.sizes[0]
    assert new.repeat([6])[total.position] == 9  # type: ignore[index]


def test_what_is_decided_by_sizes_serves_all_for_which_it_comes_out_so() -> None:
    half = remembered(lambda n: n // 2)
    tape = Tape([8, 3])
    n, _ = tape.sizes
    assert half(n) == 4 and not isinstance(half(n), Size) and isinstance(half(8), int)
    assert decided(lambda window, many: window.kernel[0] * many[0] > 16, window(n), (3, n))
    assert tape.repeat([9, 5]) is not None
    assert tape.repeat([10, 3]) is None
    assert tape.repeat([6, 3]) is None
    assert tape.serves_others


def window(n: Any) -> Windows:
    return Windows((n,), (1,), (1,), (0,), (0,), (0,), (n - 1,))


def test_recipes_make_anew_what_lies_in_records_after_the_tape_is_closed() -> None:
    tape = Tape([8])
    recipe = Recipe(
        lambda moves, more: (*moves.kernel, *moves.output, *more), (window(tape.sizes[0]), (1, tape.sizes[0]))
    )
    assert key_of(recipe.given) == key_of((window(tape.sizes[0]), (1, tape.sizes[0])))
    assert key_of(recipe.given) != key_of((window(8), (1, 8)))
    assert tape.repeat([9]) is not None
    tape.close()
    assert recipe.made() == (8, 7, 1, 8)
    assert recipe.made(tape.repeat([5])) == (5, 4, 1, 5)


def test_recipes_keep_what_is_small_by_the_numbers_it_is_made_of() -> None:
    tape, made = Tape([8, 3]), []

    def table(n: int) -> np.ndarray:
        made.append(n)
        return np.arange(n)

    recipe = Recipe(table, (tape.sizes[0],))
    for n, other in ((5, 1), (5, 2), (6, 2), (5, 2), (10000, 1), (10000, 2)):
        np.testing.assert_array_equal(recipe.made(tape.repeat([n, other])), np.arange(n))
    assert made == [5, 6, 10000, 10000]
    for n in (*range(1, 2 * KEPT), 5):
        np.testing.assert_array_equal(recipe.made(tape.repeat([n, 1])), np.arange(n))
    assert made[-1] == 5


# ---- families


def specs(**shapes: Sequence[int]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(np.dtype(np.float32), tuple(shape)) for name, shape in shapes.items()}


def test_a_family_takes_equal_numbers_for_one() -> None:
    family = Family.of(specs(a=(2, 4), b=(4, 9)), specs(a=(2, 5), b=(5, 9)))
    assert family is not None
    assert family.given(specs(a=(2, 7), b=(7, 9))) == [7]
    assert family.given(specs(a=(2, 7), b=(8, 9))) is None
    assert family.given(specs(a=(3, 7), b=(7, 9))) is None
    assert family.given(specs(a=(2, 7, 1), b=(7, 9))) is None
    assert family.given(specs(a=(2, 7))) is None


def test_what_differs_in_more_than_numbers_is_no_family() -> None:
    assert Family.of(specs(a=(2, 4)), specs(a=(2, 4))) is None
    assert Family.of(specs(a=(2, 4)), specs(a=(2, 4, 1))) is None
    assert Family.of(specs(a=(2, 4)), specs(b=(2, 5))) is None


def test_a_plain_number_is_divided_by_a_size() -> None:
    """A transposed convolution to a few channels whose filters are fed was once left to NumPy for it."""
    tape = Tape([3])
    quotient, rest = divmod(7, tape.sizes[0])
    repeated = tape.repeat([4])
    assert (quotient, rest) == (2, 1) and repeated is not None
    assert (repeated[quotient.position], repeated[rest.position]) == (1, 3)
