"""A session's provider: the object that a spec's ``create`` made, behind a plugin manager of its own that carries
``ProviderHooks``."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onnxplug.contract.errors import STATUS_ERRORS, Fail, RuntimeException
from onnxplug.contract.memory import HOST, Allocator, Device
from onnxplug.contract.options import dump_options, parse_options
from onnxplug.contract.provider import ProviderSpec, SessionContext
from onnxplug.plugins.definition import checked_hooks, managed_hooks, provider_manager
from onnxplug.plugins.manager import HookManager, hook_arguments
from onnxplug.plugins.record import describe

_PASSING = (*STATUS_ERRORS, KeyboardInterrupt)
_REFUSALS: dict[str, tuple[type[Exception], ...]] = {"set_dynamic_options": (RuntimeError,)}
"""What a hook raises by contract to refuse the caller's wish; not the provider's fault, so it passes as it is."""

_SLIPS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, TypeError)
"""What nobody raises to tell a user something."""


class ProviderInstance:
    """One provider of one session.

    ``options`` is the instance of the spec's options class, ``option_strings`` all of them with their effective values,
    ``provider`` the provider's own object. ``name`` is what the session calls it: the provider's name, with the device behind it where
    the session has several of the provider's.
    """

    def __init__(self, spec: ProviderSpec, options: Any, provider: Any) -> None:
        self.name, self.spec, self.options, self.provider = spec.name, spec, options, provider
        self.option_strings: dict[str, str] = dump_options(options)
        self.concurrent_run = bool(getattr(provider, "concurrent_run", True))
        known = checked_hooks(provider)
        self._direct = known is not None
        if known is None:
            known = managed_hooks(provider, self.manager)
            found = {name: i.function for name in known.places for i in self.manager.implementations(name)}
        else:
            found = {name: getattr(provider, name) for name in known.places}
        self._own = known.own
        self._methods = {name: _positional(found[name], places) for name, places in known.places.items()}

    @functools.cached_property
    def manager(self) -> HookManager:
        """The plugin manager of this provider alone. Where the class passed its checks before, hooks are called without it."""
        return provider_manager(self.name, self.provider)

    @property
    def hook(self) -> Any:
        """pluggy's relay to the provider."""
        return self.manager.hook

    @functools.cached_property
    def allocators(self) -> tuple[Allocator, ...]:
        """What ``create_allocators`` gives, asked for once. Fail for anything else than allocators."""
        given = self.call("create_allocators")
        if not isinstance(given, Sequence | None) or not all(isinstance(each, Allocator) for each in given or ()):
            raise Fail(f"{self.name}: create_allocators must give Allocators, it gave {given!r}")
        return tuple(given or ())

    @property
    def device(self) -> Device:
        """Where its kernels' tensors live."""
        return self.allocators[0].device if self.allocators else HOST

    def tell_apart(self) -> None:
        """Take the device into the name."""
        self.name = f"{self.spec.name}[{self.device}]"

    def supports(self, hook: str) -> bool:
        """Whether the provider implements a hook itself; the base class's default does not count."""
        return hook in self._own

    def method(self, hook: str) -> Callable[..., Any] | None:
        """The hook's bound method, called with all arguments of the specification, in order; None when there is none.

        This is the way at the edges of a run: no plugin manager is between. What it raises goes through ``failure``.
        """
        return self._methods.get(hook)

    def call(self, hook: str, **arguments: Any) -> Any:
        """Call a hook; None when it is not implemented. A generator is run to its end here.

        onnxruntime's status errors and KeyboardInterrupt pass as they are, whatever else is raised arrives as
        ``failure`` words it.
        """
        try:
            if self._direct:
                method = self._methods.get(hook)
                result = None if method is None else method(*(arguments[name] for name in hook_arguments(hook)))
            else:
                result = getattr(self.hook, hook)(**arguments)
            return list(result) if inspect.isgenerator(result) else result
        except BaseException as error:
            failure = self.failure(hook, error)
            if failure is error:
                raise
            raise failure from error

    def failure(self, hook: str, error: BaseException) -> BaseException:
        """The exception a session's user sees for what a hook raised: itself if it is part of the surface, else
        ``Fail`` (or ``RuntimeException`` for lack of memory) that names provider and hook. To be raised ``from
        error``."""
        if isinstance(error, (*_PASSING, *_REFUSALS.get(hook, ()))):
            return error
        return _raised(self.name, hook, error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def create_instance(spec: ProviderSpec, given_options: Mapping[str, str], context: SessionContext) -> ProviderInstance:
    """A provider for one session.

    RuntimeError for an option that is unknown or cannot be read; InvalidProvider for a provider that breaks the
    contract; Fail for one that raised, its exception as the cause.
    """
    try:
        options: Any = parse_options(spec.options, given_options)
    except Exception as error:
        raise RuntimeError(f"{spec.name}: {error if isinstance(error, RuntimeError) else describe(error)}") from error
    try:
        provider = spec.create(options, context)
    except _PASSING:
        raise
    except BaseException as error:
        raise _raised(spec.name, "create", error) from error
    return ProviderInstance(spec, options, provider)


def _raised(provider: str, hook: str, error: BaseException) -> Exception:
    text = f"{provider}: {hook} raised {describe(error)}{_place(error)}"
    return RuntimeException(text) if isinstance(error, MemoryError) else Fail(text)


def _place(error: BaseException) -> str:
    """Where a slip of the provider's code was raised: often no more than the message is shown."""
    trace = error.__traceback__ if isinstance(error, _SLIPS) else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno})"


def _positional(function: Callable[..., Any], places: Sequence[int] | None) -> Callable[..., Any]:
    """A hook's function taking all the arguments of the specification, though it may name fewer or in another order."""
    if places is None:
        return function
    return lambda *given: function(*[given[place] for place in places])
