"""onnxruntime's extension class of bindings, which its ``IOBinding`` wraps: devices come as ``OrtDevice``, arguments by position.

Programs meet it as ``capi.onnxruntime_pybind11_state.SessionIOBinding`` and as ``binding._iobinding``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from onnxplug.session.device import OrtDevice
from onnxplug.session.iobinding import BoundSession, IOBinding
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.vector import OrtValueVector


class SessionIOBinding:
    """A binding by the names of the extension class; see ``IOBinding``."""

    def __init__(self, session: BoundSession) -> None:
        self._whole = IOBinding(session)

    @classmethod
    def _over(cls, binding: IOBinding) -> Self:
        """A binding that exists, by these names."""
        view = cls.__new__(cls)
        view._whole = binding
        return view

    def bind_input(self, name: str, array_or_device: Any, *memory: Any) -> None:
        """``bind_input(name, array)``, or ``bind_input(name, device, element_type, shape, address)``."""
        if not memory:
            self._whole.bind_cpu_input(name, array_or_device)
            return
        element_type, shape, address = _memory(memory)
        self._whole.bind_input(name, *_device(array_or_device), element_type, shape, address)

    def bind_output(self, name: str, device: OrtDevice, *memory: Any) -> None:
        """``bind_output(name, device)``, or ``bind_output(name, device, element_type, shape, address)``."""
        self._whole.bind_output(name, *_device(device), *(_memory(memory) if memory else ()))

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Bind a value."""
        self._whole.bind_ortvalue_input(name, value)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Have an output written into this value."""
        self._whole.bind_ortvalue_output(name, value)

    def synchronize_inputs(self) -> None:
        """See ``IOBinding.synchronize_inputs``."""
        self._whole.synchronize_inputs()

    def synchronize_outputs(self) -> None:
        """See ``IOBinding.synchronize_outputs``."""
        self._whole.synchronize_outputs()

    def get_outputs(self) -> OrtValueVector:
        """One value for each bound output."""
        return self._whole.get_outputs_as_ortvaluevector()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Fresh host copies of the outputs."""
        return self._whole.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        """Forget all bound inputs."""
        self._whole.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forget all bound outputs."""
        self._whole.clear_binding_outputs()


def _device(given: Any) -> tuple[str, int]:
    if not isinstance(given, OrtDevice):
        raise TypeError(f"incompatible function arguments: expected an OrtDevice, got {given!r}")
    return given.kind, given.device_id()


def _memory(given: Sequence[Any]) -> Sequence[Any]:
    if len(given) != 3:
        raise TypeError(
            f"incompatible function arguments: expected an element type, a shape and an address, got {given!r}"
        )
    return given
