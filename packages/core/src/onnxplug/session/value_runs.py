"""Runs of a session on OrtValues: given by name, by position, or bound ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from onnxplug.contract.errors import InvalidArgument
from onnxplug.plugins import observers_for
from onnxplug.session.arguments import check_run_options, with_adapters
from onnxplug.session.feeds import check_outputs
from onnxplug.session.forked import goes_on
from onnxplug.session.inspection import Inspection

if TYPE_CHECKING:
    import numpy.typing as npt

    from onnxplug.run import Places
    from onnxplug.session.device import OrtDevice
    from onnxplug.session.engine import Engine
    from onnxplug.session.iobinding import IOBinding
    from onnxplug.session.options import RunOptions
    from onnxplug.session.ortvalue import OrtValue
    from onnxplug.session.vector import OrtValueVector


class Run(Protocol):
    """A session's run, observers told and a provider that fails replaced."""

    def __call__(
        self, engine: Engine, inputs: list[Any], names: Sequence[str], options: RunOptions | None, host: bool,
        places: Places | None = None,
    ) -> list[Any]: ...  # fmt: skip


class ValueRuns(Inspection):
    """The part of a session that takes and gives OrtValues; see ``InferenceSession``."""

    _run: Run

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As ``run`` with OrtValues in and out; outputs are in host memory."""
        from onnxplug.session.results import value

        engine = self._engine
        feed = {name: input_dict_ort_values[name]._get_c_value() for name in input_dict_ort_values.keys()}  # noqa: SIM118
        inputs = engine.feeds(feed if run_options is None else with_adapters(feed, run_options))
        names = engine.requested(output_names)
        results = self._run(engine, inputs, names, run_options, host=True)
        return [value(engine, name, result) for name, result in zip(names, results, strict=True)]

    def io_binding(self) -> IOBinding:
        """A new binding of this session."""
        from onnxplug.session.iobinding import IOBinding

        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with bound inputs and outputs; results go where they were bound. RuntimeError ``Error in execution: ...``
        on failure."""
        if getattr(iobinding, "_session", None) is not self or (
            iobinding._made_for is not self._engine and not goes_on(iobinding)
        ):
            raise ValueError("IOBinding must be used with the session that created it.")
        engine = self._engine
        check_run_options(run_options)
        try:
            bound = iobinding._bound()
            if bound.idle and run_options is None and not _are_watched() and bound.again():
                return
            names: Sequence[str] = bound.names
            if not names:
                raise InvalidArgument("At least one output should be requested.")
            if names == engine.output_names:
                names = engine.output_names
            else:
                check_outputs(names, engine.output_names)
            if run_options is not None and run_options._adapters:
                inputs = engine.feeds(with_adapters(bound.inputs, run_options))
            elif bound.values is not None:
                inputs = bound.values
            else:
                inputs = engine.feeds(bound.inputs)
            places = engine.places(inputs, bound.given) if bound.given else None
            results = self._run(engine, inputs, names, run_options, host=False, places=places)
            bound.take(results, self._engine)
            if run_options is None or not run_options._adapters:
                bound.ran(inputs, engine)
        except Exception as error:
            raise RuntimeError(f"Error in execution: {getattr(error, 'text', error)}") from error

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """Run with values by position. Results go into the values of ``fetches``, or are appended to it on the devices
        named where it is empty."""
        binding = self.io_binding()
        for name, value in zip(feed_names, feeds, strict=True):
            binding.bind_ortvalue_input(name, value)
        given: list[OrtValue | None] = list(fetches) or [None] * len(fetch_names)
        for name, fetch, device in zip(fetch_names, given, fetch_devices, strict=True):
            if fetch is not None and fetch.has_value():
                binding.bind_ortvalue_output(name, fetch)
            else:
                binding.bind_output(name, device.kind, device.device_id())
        self.run_with_iobinding(binding, run_options)
        fetches._replace(binding.get_outputs())

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: npt.DTypeLike | int,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """An uninitialised tensor in memory of this session, which it keeps alive. RuntimeError for a device that the
        session does not use."""
        from onnxplug.session.results import empty

        return empty(self._engine, shape, element_type, device_type, device_id, vendor_id)


def _are_watched() -> bool:
    """Whether an observer is told of runs."""
    return bool(observers_for("onnxplug_run_start") or observers_for("onnxplug_run_end"))
