"""Checks of a provider's class against the hook specification: a mistake in a name or an argument is a load error,
never a silent default."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pluggy

from onnxplug.contract.errors import Fail
from onnxplug.contract.hooks import ProviderHooks
from onnxplug.contract.provider import ExecutionProvider
from onnxplug.plugins.manager import FUNCTIONS, HookManager

_NEAR = 0.8


class InvalidProvider(Fail):
    """A provider's class breaks the contract: a misspelt hook, a hook with other arguments. ``provider`` and ``hook``
    name it."""

    def __init__(self, provider: str, hook: str, text: str) -> None:
        super().__init__(f"{provider}: {text}")
        self.provider, self.hook = provider, hook


def provider_manager(name: str, provider: Any) -> HookManager:
    """The manager that carries the hooks of one provider object; InvalidProvider where the class breaks the
    contract."""
    if inspect.isclass(provider) or inspect.getattr_static(provider, "get_capability", None) is None:
        returned = f"the class {provider.__name__}" if inspect.isclass(provider) else f"a {type(provider).__name__}"
        raise InvalidProvider(name, "create", f"create returned {returned}, not an ExecutionProvider")
    manager = HookManager(ProviderHooks)
    _refuse_values(name, manager, provider)
    try:
        manager.register(provider, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _invalid(name, manager, str(error)) from error
    _refuse_arguments(name, manager)
    _refuse_near_misses(name, manager, provider)
    return manager


def is_default(hook: str, implementation: pluggy.HookImpl) -> bool:
    """Whether an implementation is the one that ``ExecutionProvider`` gives to all."""
    return getattr(implementation.function, "__func__", None) is vars(ExecutionProvider).get(hook, implementation)


def _invalid(name: str, manager: HookManager, text: str) -> InvalidProvider:
    """pluggy's complaint, with the hook it is about."""
    named = re.search(r"hook '(\w+)'", text)
    hook = named.group(1) if named else ""
    if hook in manager.names:
        return InvalidProvider(name, hook, f"{hook}: {' '.join(text.split())}")
    guess = _nearest(hook, manager.names, cutoff=0.6)
    return InvalidProvider(name, hook, f"{hook} is not a hook" + (f"; did you mean {guess}?" if guess else ""))


def _refuse_values(name: str, manager: HookManager, provider: Any) -> None:
    for hook in sorted(manager.names):
        found = inspect.getattr_static(provider, hook, None)
        if found is not None and not isinstance(found, FUNCTIONS):
            text = f"{hook} is a {type(found).__name__}; a hook is a method (or None: not supported)"
            raise InvalidProvider(name, hook, text)


def _refuse_arguments(name: str, manager: HookManager) -> None:
    """Arguments that pluggy would never pass: those with a default, and keyword-only ones."""
    for hook in sorted(manager.names):
        specified = manager.arguments(hook)
        for implementation in manager.implementations(hook):
            for argument in inspect.signature(implementation.function).parameters.values():
                defaulted = argument.name in specified and argument.default is not argument.empty
                if defaulted or argument.kind is argument.KEYWORD_ONLY:
                    text = f"{hook}: argument {argument.name} must be positional without a default to be given at all"
                    raise InvalidProvider(name, hook, text)


def _refuse_near_misses(name: str, manager: HookManager, provider: Any) -> None:
    """Public methods called almost like a hook that the class does not implement itself."""
    own = {hook for hook in manager.names for i in manager.implementations(hook) if not is_default(hook, i)}
    for method in dir(type(provider)):
        if method.startswith("_") or method in manager.names:
            continue
        if not isinstance(inspect.getattr_static(provider, method), FUNCTIONS):
            continue
        guess = _nearest(method, manager.names - own, _NEAR)
        if guess is not None and not any(i.function.__name__ == method for i in manager.implementations(guess)):
            text = f"{method} is not a hook; did you mean {guess}? (A helper of such a name starts with an underscore.)"
            raise InvalidProvider(name, guess, text)


def _nearest(name: str, hooks: frozenset[str], cutoff: float) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, sorted(hooks), n=1, cutoff=cutoff)), None)
