"""``IOBinding``: inputs and outputs of a session tied to memory ahead of its runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxplug.contract.memory import HOST
from onnxplug.contract.records import record
from onnxplug.contract.types import TensorType
from onnxplug.run.places import are_worth
from onnxplug.session.addresses import at_address
from onnxplug.session.conversion import is_plain, tensor_of
from onnxplug.session.device import OrtDevice
from onnxplug.session.handed import handed
from onnxplug.session.ortvalue import OrtValue
from onnxplug.session.results import deliver, filled
from onnxplug.session.settings import as_text
from onnxplug.session.vector import OrtValueVector

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxplug.contract.types import ValueType
    from onnxplug.run.strides import Repeat
    from onnxplug.session.engine import Engine
    from onnxplug.session.extension_binding import SessionIOBinding

_device = functools.lru_cache(maxsize=64, typed=True)(OrtDevice.make)
"""The device of a name and a number; programs that bind anew for each run ask for the same few."""
_HOST = _device("cpu", 0)


class BoundSession(Protocol):
    """What a binding asks of its session."""

    def _feedable(self) -> Mapping[str, ValueType]:
        """The declared type of everything that can be fed, by name."""


@record(slots=True)
class OutputBinding:
    """Where an output goes: into ``value`` when memory was given, else into fresh memory of ``device``. ``result`` is
    the last run's: an array for one in host memory until somebody asks for its value.
    """

    name: str
    device: OrtDevice
    value: OrtValue | None = None
    result: OrtValue | np.ndarray | None = None

    @property
    def is_host(self) -> bool:
        """Whether it is for host memory."""
        return self.device is _HOST or self.device.kind == HOST.kind

    def fetched(self) -> OrtValue | None:
        """The value of the last run, else the memory given, if there is either."""
        if isinstance(self.result, np.ndarray):
            self.result = OrtValue._wrap(self.result)
        return self.result or self.value


@record(slots=True)
class Bound:
    """What is bound: inputs by name, names of outputs, outputs, and the memory given for some by name, if that
    is worth while. ``values`` are the inputs in declared order once two runs have found
    that they fit, where they cannot but go on to do so; ``idle`` has what then runs them, unless that needs more or a thread has it."""

    inputs: dict[str, OrtValue]
    names: list[str]
    outputs: list[OutputBinding]
    given: dict[str, Any]
    values: list[Any] | None = None
    runs: int = 0
    idle: list[Repeat] | None = None
    fresh: Sequence[OutputBinding] = ()

    def take(self, results: Sequence[Any], engine: Engine) -> None:
        """Have the results of a run, where they were bound."""
        for output, result in zip(self.outputs, results, strict=True):
            value = output.value
            if value is None and result.__class__ is np.ndarray and output.is_host:
                output.result = result
            elif value is not None and filled(value._payload, result):
                output.result = value
            else:
                output.result = deliver(engine, output, result)

    def ran(self, values: Sequence[Any], engine: Engine) -> None:
        """Make later runs shorter, if there are some: a program that binds anew for each run gets no second one."""
        self.runs += 1
        if self.runs == 2 and self._stay(values):
            self.values = [v.view() for v in values]
            given = [None if output.value is None else output.value._payload for output in self.outputs]
            places = zip(self.outputs, given, strict=True)
            are_arrays = all(o.is_host if o.value is None else x.__class__ is np.ndarray for o, x in places)
            if are_arrays and self.names == engine.output_names:
                self.fresh = [output for output in self.outputs if output.value is None]
                made = engine.repeated(self.values, [None if x is None else x.view() for x in given])
                self.idle = None if made is None else [made]

    def _stay(self, values: Sequence[Any]) -> bool:
        """Whether the values are the arrays that were bound, with a type and shape that nobody can change."""
        if any(v.__class__ is not np.ndarray or v.dtype.hasobject for v in values):
            return False
        payloads = [value._payload for value in self.inputs.values()]
        held = {id(x) for payload in payloads for x in (payload, getattr(payload, "base", None)) if x is not None}
        return all(id(v) in held or (v.base is not None and id(v.base) in held) for v in values)

    def again(self) -> bool:
        """Run as before, if that needs no more than ``idle`` has; False where it did not run, or failed: the whole way says why."""
        if not (idle := self.idle):
            return False
        try:
            repeat = idle.pop()
        except IndexError:
            return False
        try:
            results = repeat()
        except Exception:
            results = None
        idle.append(repeat)
        if results is None:
            return False
        for output, result in zip(self.fresh, results, strict=True):
            output.result = result
        return True


class IOBinding:
    """Bindings for ``session.run_with_iobinding``. Binding a name again replaces what it was bound to; the order is
    that of binding.
    """

    def __init__(self, session: BoundSession) -> None:
        session = getattr(session, "_whole", session)  # of an extension class's session, the one it stands for
        self._session = session
        self._feedable = session._feedable()  # which makes a session of the process this one was forked from anew
        self._made_for = getattr(session, "_engine", None)  # set_providers does so too, and bindings are void
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OutputBinding] = {}
        self._latest: Bound | None = None

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an array. It is read at each run, so later changes to it count (a non-contiguous one is copied now).
        RuntimeError for inputs that are text or no tensors.
        """
        if self._known(name) not in self._feedable:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        if not isinstance(arr_on_cpu, np.ndarray):
            raise RuntimeError("Unable to create OrtValue from the given python object")
        declared = self._feedable[name]
        if not isinstance(declared, TensorType) or declared.element == "string":
            kind = "non-string Tensors" if isinstance(declared, TensorType) else "Tensors"
            raise RuntimeError(f"Only binding {kind} is currently supported")
        if is_plain(arr_on_cpu, declared.dtype):  # as nearly always
            self._inputs[name] = OrtValue._wrap(arr_on_cpu)
        else:
            self._inputs[name] = OrtValue._wrap(*tensor_of(declared, arr_on_cpu))
        self._latest = None

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: npt.DTypeLike | int,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind memory by address; it stays the caller's and has to outlive the runs. ``element_type`` is a NumPy type
        or a TensorProto.DataType number.
        """
        device = _device(device_type, device_id)
        value = at_address(device, element_type, shape, buffer_ptr, "Error when binding input:")
        self._bind_input(name, value)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value."""
        self._bind_input(name, self._mine(ortvalue._get_c_value()))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: npt.DTypeLike | int | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Have an output delivered on a device: in fresh memory of each run, or at ``buffer_ptr``, for which
        ``element_type`` and ``shape`` are needed. The name is checked at the run; an output stays in host memory where
        nobody offers the device's.
        """
        device, value = _device(device_type, device_id), None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
            value = at_address(device, element_type, shape, buffer_ptr, "Error when binding output:")
        self._outputs[self._known(name)] = OutputBinding(name, device, value)
        self._latest = None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into this value, whose type and shape must be the output's at the run."""
        value = self._mine(ortvalue._get_c_value())
        self._outputs[self._known(name)] = OutputBinding(name, _device_of(value), value)
        self._latest = None

    def synchronize_inputs(self) -> None:
        """Wait until memory of a device that is bound by its address has been written. Copies are complete when the call that starts
        them returns.
        """
        for value in self._inputs.values():
            settle = getattr(value._payload, "settle", None)
            if settle is not None:
                settle()

    def synchronize_outputs(self) -> None:
        """A run returns when its results are complete; nothing to wait for."""

    def get_outputs(self) -> list[OrtValue]:
        """One value for each bound output: of the last run, else the memory bound to it, else an unallocated value."""
        return [output.fetched() or OrtValue._wrap(None) for output in self._outputs.values()]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """``get_outputs()`` as an ``OrtValueVector``."""
        vector = OrtValueVector()
        vector._replace(self.get_outputs())
        return vector

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Fresh host copies of the outputs: arrays, or lists and dictionaries for sequences and maps. RuntimeError
        before a run.
        """
        missing = [name for name, output in self._outputs.items() if output.result is None and output.value is None]
        if missing:
            raise RuntimeError(f"Outputs {missing} have no value yet: call run_with_iobinding first")
        return [_on_host(output) for output in self._outputs.values()]

    def clear_binding_inputs(self) -> None:
        """Forget all bound inputs."""
        self._inputs.clear()
        self._latest = None

    def clear_binding_outputs(self) -> None:
        """Forget all bound outputs."""
        self._outputs.clear()
        self._latest = None

    @property
    def _iobinding(self) -> SessionIOBinding:
        """The name under which programs reach for onnxruntime's inner object."""
        from onnxplug.session.extension_binding import SessionIOBinding

        return SessionIOBinding._over(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"cannot pickle '{type(self).__name__}' object")

    def _bound(self) -> Bound:
        """What is bound now; a run that is under way is not concerned by what is bound later."""
        found = self._latest
        if found is None:
            outputs = list(self._outputs.values())
            given = {output.name: output.value._payload for output in outputs if output.value is not None}
            if given and not are_worth(given.values()):
                given = {}
            found = self._latest = Bound(self._inputs.copy(), list(self._outputs), outputs, given)
        return found

    def _mine(self, value: OrtValue) -> OrtValue:
        if value._scope is not None and value._scope is not getattr(self._made_for, "lifetime", None):
            raise ValueError("Session-scoped OrtValue must be bound to the session that created it.")
        return value

    def _bind_input(self, name: str, value: OrtValue) -> None:
        if self._known(name) not in self._feedable:
            raise RuntimeError(f"Error when binding input: Failed to find input name in the mapping: {name}")
        self._inputs[name] = value
        self._latest = None

    @staticmethod
    def _known(name: str) -> str:
        try:
            return as_text(name)
        except TypeError as error:
            raise TypeError(f"incompatible function arguments: {error}") from None


def _device_of(value: OrtValue) -> OrtDevice:
    payload = value._payload
    if payload is None or isinstance(payload, np.ndarray) or not hasattr(payload, "to_host"):
        return _HOST
    return _device(payload.device.kind, payload.device.id)


def _on_host(output: OutputBinding) -> Any:
    made = output.value if output.result is None else output.result
    payload: Any = made._payload if isinstance(made, OrtValue) else made
    if isinstance(payload, np.ndarray):
        return handed(payload.copy())
    return handed(payload.to_host() if hasattr(payload, "to_host") else payload)
