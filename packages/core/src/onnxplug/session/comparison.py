"""What was fed or given for results, compared with what the model declares, in onnxruntime's words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.contract.errors import InvalidArgument
from onnxplug.contract.types import OptionalType, SparseTensorType, TensorType, ValueType
from onnxplug.session.conversion import Typed, declared_tensor

if TYPE_CHECKING:
    from onnxplug.session.feeds import InputSpec


def check(spec: InputSpec, typed: Typed) -> None:
    """InvalidArgument where a converted value does not fit its declaration: kind of type, element type, rank, fixed dimensions."""
    if typed.value is None:
        return
    wanted, actual = spec.type, typed.type
    tensor = declared_tensor(wanted)
    if isinstance(actual, TensorType) and tensor is not None:
        if actual.element != tensor.element:
            raise InvalidArgument(f"Unexpected input data type. Actual: ({actual}) , expected: ({tensor})")
        check_shape(spec.name, typed.value.shape, tensor)
    elif isinstance(actual, TensorType):
        number = _general_kind(wanted)
        raise InvalidArgument(f"input with name: '{spec.name}' expected to be of type: {number} but received a tensor")
    elif (
        isinstance(actual, SparseTensorType)
        and isinstance(wanted, SparseTensorType)
        and actual.element == wanted.element
    ):
        check_shape(spec.name, typed.value.dense_shape(), TensorType(wanted.element, wanted.shape))
    elif str(actual) != str(wanted.element if isinstance(wanted, OptionalType) else wanted):
        if str(actual).startswith("seq(tensor") and tensor is not None:
            raise InvalidArgument(
                f"input with name: '{spec.name}' expected to be of type: 2 but received a tensor sequence"
            )
        raise InvalidArgument(f"Unexpected input data type. Actual: (({actual})) , expected: (({wanted}))")


def check_shape(name: str, shape: Sequence[int], declared: TensorType, side: str = "input") -> None:
    """InvalidArgument where a tensor for an input or, as ``side`` says, an output has another rank than declared, or other fixed
    dimensions."""
    if not declared.shape:
        return
    if len(shape) != len(declared.shape):
        raise InvalidArgument(
            f"Invalid rank for {side}: {name} Got: {len(shape)} Expected: {len(declared.shape)}"
            " Please fix either the inputs/outputs or the model."
        )
    wrong = [
        f" index: {axis} Got: {size} Expected: {dim}\n"
        for axis, (size, dim) in enumerate(zip(shape, declared.shape, strict=True))
        if isinstance(dim, int) and size != dim
    ]
    if wrong:
        raise InvalidArgument(
            f"Got invalid dimensions for {side}: {name} for the following indices\n{''.join(wrong)}"
            " Please fix either the inputs/outputs or the model."
        )


def _general_kind(type_: ValueType) -> int:
    """onnxruntime's number of a type's kind, as its message shows it."""
    if isinstance(type_, OptionalType):
        return 5
    if isinstance(type_, SparseTensorType):
        return 4
    return 3 if str(type_).startswith("seq(tensor") else 1
