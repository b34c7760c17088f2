"""Runs of a session in other threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug.contract.errors import Fail, InvalidArgument
from onnxplug.session import environment
from onnxplug.session.arguments import check_run_options, with_adapters
from onnxplug.session.feeds import check_outputs
from onnxplug.session.options import RunOptions
from onnxplug.session.value_runs import ValueRuns


class AsyncRuns(ValueRuns):
    """The part of a session that calls back with results; see ``InferenceSession``."""

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """As ``run`` in another thread, which calls ``callback(results, user_data, error)``: error is "" for a run
        that succeeded, else its text, and then there are no results.

        ValueError for missing feeds at once, InvalidArgument for a session with ``intra_op_num_threads`` 1.
        """
        from onnxplug.session.threads import in_thread  # few programs do this

        if not callable(callback):
            raise TypeError(f"run_async(): incompatible function arguments: expected a callable, got {callback!r}")
        check_run_options(run_options)
        engine = self._engine
        engine.feeds.require(input_feed)
        if environment.requested_threads(self._options) == 1:
            raise InvalidArgument("intra op thread pool must have at least one thread for RunAsync")
        try:
            if isinstance(output_names, list | tuple):
                check_outputs(output_names, engine.output_names)
            names = engine.requested(output_names)
            inputs = engine.feeds(with_adapters(input_feed, run_options))
            refused = None
        except (InvalidArgument, Fail) as error:  # what does not fit the model is for the callback
            refused = error

        def work() -> None:
            try:
                if refused is not None:
                    raise refused
                results, text = engine.handed(self._run(engine, inputs, names, run_options, host=True), names), ""
            except Exception as error:
                results, text = [], str(getattr(error, "text", error))
            callback(results, user_data, text)

        in_thread(work, "onnxplug-run-async")
