"""``OrtValueVector``: the list of values that DLPack glue code and ``run_with_ortvaluevector`` pass on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onnxplug.session.addresses import at_address
from onnxplug.session.device import OrtDevice
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.settings import as_int


class OrtValueVector:
    """A list of OrtValues with the method names that DLPack glue code uses."""

    def __init__(self) -> None:
        self._values: list[OrtValue] = []

    def push_back(self, value: Any, is_bool_tensor: bool = False) -> None:
        """Append a value, or the tensor of a DLPack capsule: one of uint8 as booleans where ``is_bool_tensor``."""
        if not isinstance(value, OrtValue):
            value = OrtValue.from_dlpack(value, is_bool_tensor)
        self._values.append(value)

    def reserve(self, size: int) -> None:
        """Nothing to do for a Python list."""
        as_int(size)

    def shrink_to_fit(self) -> None:
        """Nothing to do for a Python list."""

    def bool_tensor_indices(self) -> list[int]:
        """Where the boolean tensors are."""
        return [i for i, value in enumerate(self._values) if value.data_type() == "tensor(bool)"]

    def element_type_at(self, idx: int) -> int:
        """``element_type()`` of one value."""
        return self._values[idx].element_type()

    def push_back_batch(
        self,
        tensors: Sequence[Any],
        addresses: Sequence[int],
        element_types: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[OrtDevice],
    ) -> None:
        """Append values over host memory by address; ``tensors`` are what owns it."""
        for owner, address, type_, shape, device in zip(
            tensors, addresses, element_types, shapes, devices, strict=True
        ):
            self._values.append(at_address(device, type_, shape, address, "Error when appending:", owner))

    def dlpack_at(self, index: int) -> Any:
        """The DLPack capsule of one value."""
        return self._values[index].__dlpack__()

    def to_dlpacks(self, to_tensor: Any) -> list[Any]:
        """DLPack capsules of all values, each passed through ``to_tensor`` unless that is None."""
        capsules = (value.__dlpack__() for value in self._values)
        return [to_tensor(capsule) if to_tensor else capsule for capsule in capsules]

    def _replace(self, values: Iterable[OrtValue]) -> None:
        self._values[:] = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> OrtValue:
        return self._values[index]

    def __iter__(self) -> Iterator[OrtValue]:
        return iter(self._values)
