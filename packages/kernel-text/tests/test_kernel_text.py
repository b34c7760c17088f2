"""Texts and iteration spaces; what kernels compute is tested by the providers that run them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.expression import OPERATORS, expression, statements
from onnxplug_kernel_text.layout import broadcast, dense, space
from onnxplug_kernel_text.planes import Phases, planes
from onnxplug_kernel_text.types import literal

SHAPES = st.lists(st.integers(1, 4), max_size=5).map(tuple)


def walk(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return [sum(i * s for i, s in zip(at, strides, strict=True)) for at in itertools.product(*map(range, shape))]


@settings(deadline=None)  # on a machine under load
@given(SHAPES, st.data())
def test_joining_dimensions_keeps_the_order_of_elements(shape: tuple[int, ...], data: st.DataObject) -> None:
    thin = tuple(data.draw(st.sampled_from([1, n])) for n in shape)
    order = data.draw(st.permutations(range(len(shape))))
    moved = tuple(dense(shape)[k] for k in order)
    seen = tuple(shape[k] for k in order)
    made = space(seen, [moved, dense(seen), tuple(broadcast(thin, shape)[k] for k in order)])
    for original, joined in zip(
        [moved, dense(seen), tuple(broadcast(thin, shape)[k] for k in order)], made.strides, strict=True
    ):
        assert walk(seen, original) == walk(made.shape, joined)


@settings(deadline=None)  # on a machine under load
@given(SHAPES)
def test_a_dense_tensor_is_walked_in_one_dimension(shape: tuple[int, ...]) -> None:
    assert len(space(shape, [dense(shape), dense(shape)]).shape) == 1


def test_strides_that_are_arguments_are_among_the_scalars() -> None:
    made = space((5, 7), [(1, 5), (7, 1)])
    assert made.patterns == ((None, None), (None, 1))
    assert made.scalars == [35, 7, 1, 5, 7]
    text = elementwise("t", [Operand("f32", made.patterns[0])], [Operand("f32", made.patterns[1])], "y0 = x0;")
    assert "const i32 points, const i32 d1, const i32 in0_s0, const i32 in0_s1, const i32 out0_s0" in text


@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_every_operator_is_written(operator: str) -> None:
    if operator == "BitShift":
        text = expression(operator, ["a", "b"], ["u8"] * 2, "u8", {"direction": "LEFT"})
    elif operator == "Where":
        text = expression(operator, ["a", "b", "c"], ["u8"] * 3, "u8", {})
    else:
        text = _written(operator)
    assert text.count("(") == text.count(")")


def test_many_operands_are_joined_two_at_a_time() -> None:
    lines = statements("m", "Mean", ["a", "b", "c"], ["f32"] * 3, "f32", {})
    assert lines == ["f32 m = a;", "m = (m + b);", "m = (m + c);", "m = m / (3.0f);"]


def _written(operator: str) -> str:
    for count in (2, 1):
        try:
            return expression(operator, ["a", "b"][:count], ["f32"] * 2, "f32", {})
        except (KeyError, ValueError, IndexError):
            continue
    raise AssertionError(f"{operator} takes neither one operand nor two")


def test_literals_are_exact() -> None:
    assert literal(0.1, "f64") == "(0.1)"
    assert literal(float("-inf"), "f32") == "((f32)(-INFINITY))"
    assert literal(-(2**63), "i64") == "(-9223372036854775807L - 1)"
    assert literal(3, "u8") == "((u8)3)"


@pytest.mark.parametrize(("window", "step", "gap"), [(16, 16, 1), (32, 32, 1), (5, 12, 5), (7, 24, 6)])
def test_text_does_not_grow_with_the_steps_of_a_window(window: int, step: int, gap: int) -> None:
    """Text for each pair of remainders took compilers minutes over an image's patches."""
    phases = Phases.of(window, step, gap)
    assert planes("k", "f32", phases, phases).count("LOAD_f32") <= 9
    assert {k * gap % step for k in range(window)} <= set(phases.remainders)
