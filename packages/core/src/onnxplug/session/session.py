"""``InferenceSession``: load -> optimize -> place -> plan -> run."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

from onnxplug._uncollected import uncollected
from onnxplug.contract.errors import EPFail, InvalidArgument, NoModel
from onnxplug.plugins import observers_for
from onnxplug.session import environment, forked
from onnxplug.session.arguments import check_run_options, model_source, session_options, with_adapters
from onnxplug.session.async_runs import AsyncRuns
from onnxplug.session.entries import check_entries
from onnxplug.session.options import RunOptions, SessionOptions
from onnxplug.session.settings import as_int
from onnxplug.session.severity import SessionLog, is_severity

if TYPE_CHECKING:
    from onnxplug.run import Places
    from onnxplug.session.engine import Engine


class InferenceSession(AsyncRuns):
    """A model made ready to run on a list of providers.

    ``path_or_bytes``: a path or serialized model. ``providers``: names or (name, options) pairs in priority order; the
    CPU provider is appended when it is not named. Keyword ``enable_fallback=0`` raises what would otherwise end on the
    CPU provider. Raises onnxruntime's exception classes (``onnxplug.contract.errors``); nothing is left half made.

    A creation that takes more than two seconds shows a bar on standard error, if that is a terminal and the config entry
    ``session.show_progress`` or the environment variable ``ONNXPLUG_PROGRESS`` is "1".
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._source = model_source(path_or_bytes)
        self._sess_options_initial = sess_options
        self._options = session_options(sess_options)
        self._read_config_from_model = bool(
            int(kwargs.get("read_config_from_model", os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1"))
        )
        self._configure(kwargs)
        self._fallback = int(kwargs.get("enable_fallback", 1)) == 1
        environment.requested_threads(self._options)  # refused before a fallback could be tried
        check_entries(self._options)
        self._begin()
        try:
            self._create(*self._chosen(providers, provider_options))
        except (ValueError, RuntimeError) as error:
            if not self._fallback or self._options._config_entries.get("session.strict_providers") == "1":
                raise
            from onnxplug.session.fallback import create_on_fallback

            create_on_fallback(self._create, error, providers)
            self._fallback = False
        if self._options._config_entries.get("ep.context_enable") == "1":
            from onnxplug.session.ep_context import save_context

            save_context(self._engine.built, self._options)

    def _configure(self, given: Mapping[str, Any]) -> None:
        """Take into the options what the model's metadata and the keyword arguments say of them."""
        if os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1":
            from onnxplug.session.model_config import configured
            from onnxplug.session.pipeline import load

            if not given.get("read_config_from_model", 1):
                raise RuntimeError("ModelProto needs to be parsed to check for ORT config within it")
            self._options = configured(load(self._source, self._options).proto, self._options)
        if "disabled_optimizers" in given:
            names = ";".join(given["disabled_optimizers"] or ())
            self._options._config_entries["optimization.disable_specified_optimizers"] = names

    def _begin(self) -> None:
        """Make what cannot be copied to another process: log, profile and lock."""
        if not is_severity(self._options.log_severity_level):
            raise RuntimeError(
                "Invalid session log severity level. Not a valid onnxruntime::logging::Severity value: "
                f"{self._options.log_severity_level}"
            )
        self._log = SessionLog(self._options.log_severity_level, self._options.logid)
        self._profile: Profile | None = None
        self._profiled_from = 0
        if self._options.enable_profiling:
            from onnxplug.session.profile import Profile

            self._profile = Profile(self._options.profile_file_prefix, self, self._log)
            self._profiled_from = self._profile.start_ns
        self._remaking = threading.Lock()

    def _create(self, providers: Any, provider_options: Any) -> None:
        """``_make``, with a progress bar where one is wanted."""
        shown = self._options._config_entries.get("session.show_progress", os.environ.get("ONNXPLUG_PROGRESS"))
        if shown == "1":  # a library writes to the terminal of a program that wants it to
            from onnxplug.session.progress import progress

            with progress("loading the model"), uncollected():
                self._make(providers, provider_options)
        else:
            with uncollected():
                self._make(providers, provider_options)

    def _make(self, providers: Any, provider_options: Any) -> None:
        """Select providers, load the model, optimize and place it, and make the engine that runs it; nothing changes where that fails."""
        # imported by the first session, so that a program that only names the class does not wait for it
        from onnxplug.session.engine import Engine
        from onnxplug.session.hooks import close
        from onnxplug.session.pipeline import build, open_model
        from onnxplug.session.selection import select, thread_count

        self._log.info("Initializing session.")
        options, profile = self._options, self._profile
        stage = profile.stage if profile is not None else nullcontext
        threads = thread_count(environment.requested_threads(options))
        selection = select(providers, provider_options, options._config_entries, threads, environment._seed, self._log)
        try:
            with stage("model_loading_array" if isinstance(self._source, bytes) else "model_loading_uri"):
                opened = open_model(self._source, options, selection)
            with stage("session_initialization"):
                built = build(opened, options, selection, self._log, stage)
                self._engine = Engine(built, selection, self._log, profile, options)
        except BaseException:
            close(selection.instances, self._log)
            raise
        forked.watch(self)
        self._log.info("Session successfully initialized.")
        for tell in observers_for("onnxplug_session_created"):
            tell(session=self)
        for tell in observers_for("onnxplug_placed"):
            tell(session=self, placement=self.placement())

    def _chosen(self, providers: Any, provider_options: Any) -> tuple[Any, Any]:
        """The arguments of a session or of ``set_providers``, and where they name no provider, those that the options have."""
        if not self._options.has_providers():
            return providers, provider_options
        if providers or (providers is not None and provider_options):
            warnings.warn(_TWICE, stacklevel=3)
            return providers, provider_options
        return self._options._providers or self._by_policy(), None

    def _by_policy(self) -> list[tuple[str, dict[str, str]]]:
        from onnxplug.session.pipeline import load
        from onnxplug.session.policy import by_policy, described

        return by_policy(self._options._policy, lambda: described(load(self._source, self._options).proto))

    # ---- running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute the outputs named (None: all) for a feed dictionary; fresh NumPy arrays, lists for sequences, dicts
        for maps.

        Raises ValueError for missing feeds, InvalidArgument for feeds or names that do not fit, Fail for a kernel that
        failed.
        """
        engine = self._engine
        inputs = engine.feeds(input_feed if run_options is None else with_adapters(input_feed, run_options))
        names = engine.requested(output_names) if output_names else engine.output_names
        return engine.handed(self._run(engine, inputs, names, run_options, host=True), names)

    def _run(
        self, engine: Engine, inputs: list[Any], names: Sequence[str], options: RunOptions | None, host: bool,
        places: Places | None = None,
    ) -> list[Any]:  # fmt: skip
        if not names:
            raise InvalidArgument("At least one output should be requested.")
        check_run_options(options)
        for tell in observers_for("onnxplug_run_start"):
            tell(session=self, options=options)
        try:
            try:
                results = engine.run(inputs, names, options, host, places)
            except EPFail as error:
                results = self._without(engine, error).run(inputs, list(names), options, host)
        except BaseException as error:
            for tell in observers_for("onnxplug_run_end"):
                tell(session=self, options=options, error=error)
            raise
        for tell in observers_for("onnxplug_run_end"):
            tell(session=self, options=options, error=None)
        return results

    def _without(self, engine: Engine, error: EPFail) -> Engine:
        """The engine that goes on without the provider that failed; raises the failure where there is no other."""
        failed = getattr(error, "provider", None)
        rest = [(i.spec.name, i.option_strings) for i in engine.selection.instances if i.name != failed]
        if not self._fallback or failed is None or not rest:
            raise error
        with self._remaking:
            if self._engine is engine:  # else another thread was faster
                from onnxplug.session.fallback import announce_failed_run

                announce_failed_run(error, engine.selection.names, [name for name, _ in rest], self._log)
                self._create(rest, None)
            return self._engine

    # ---- lifetime

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Make the session anew on other providers; what fails is raised, and the session stays as it was."""
        self._create(*self._chosen(providers, provider_options))

    def _reset_session(self, providers: Any, provider_options: Any) -> None:
        """The name under which programs make onnxruntime's session anew, some with other options."""
        self._begin()
        self._create(providers, provider_options)

    def _create_inference_session(
        self, providers: Any, provider_options: Any, disabled_optimizers: Collection[str] | None = None
    ) -> None:
        """The name under which programs that derive from the class make what it runs."""
        if disabled_optimizers is not None:
            self._configure({"disabled_optimizers": disabled_optimizers})
        self._create(providers, provider_options)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Forget the device work recorded under a ``gpu_graph_id``."""
        number = as_int(graph_annotation_id)
        if self._engine.capture is not None:
            self._engine.capture.release(number)

    def end_profiling(self) -> str:
        """Write the profile; its file name, or '' when profiling is off or already ended."""
        if self._profile is None:
            return ""
        profile, self._profile = self._profile, None
        self._engine.profile = self._engine.built.runtime.profile = None
        return profile.save()

    def __getstate__(self) -> dict[str, Any]:
        """What makes the session anew: the model's path or bytes, options, providers with their options."""
        source = self._source if isinstance(self._source, bytes) else os.path.abspath(self._source)
        providers = self._engine.selection.entries
        mine = {name: value for name, value in vars(self).items() if name not in _MADE}
        return {**mine, "_source": source, "_providers": providers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        providers = state.pop("_providers")
        vars(self).update(state)
        self._begin()
        self._create(providers, None)

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Give every buffer back and close the providers; happens by itself when the session and the device values it
        gave out are gone. A closed session raises NoModel; a provider that cannot be closed raises Fail."""
        engine, self._engine = self._engine, _Closed()  # type: ignore[assignment]
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.leave()
        lifetime = vars(engine).get("lifetime")  # a session that is closed, or of a parent process, has none to end
        if lifetime is not None:
            lifetime.end()


Session = InferenceSession
"""onnxruntime's base class of sessions, which has but this one."""

_MADE = frozenset({"_engine", "_log", "_profile", "_profiled_from", "_remaking"})
"""Attributes of a session that each process makes for itself."""

_TWICE = (
    "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been configured "
    "with providers. InferenceSession will only use the providers passed to InferenceSession()."
)


class _Closed:
    """The engine of a closed session."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NoModel("The session is closed.")
