"""Checks of a provider's class against the hook specification: a mistake in a name or an argument is a load error,
never a silent default."""

from __future__ import annotations

import inspect
import re
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import pluggy

from onnxplug.contract.errors import Fail
from onnxplug.contract.hooks import ProviderHooks
from onnxplug.contract.provider import ExecutionProvider
from onnxplug.contract.records import record
from onnxplug.plugins.manager import FUNCTIONS, HookManager, hook_names

_NEAR = 0.8


class InvalidProvider(Fail):
    """A provider's class breaks the contract: a misspelt hook, a hook with other arguments. ``provider`` and ``hook``
    name it."""

    code = Fail.code  # without one of its own its message would have no status

    def __init__(self, provider: str, hook: str, text: str) -> None:
        super().__init__(f"{provider}: {text}")
        self.provider, self.hook = provider, hook


@record(frozen=True, slots=True)
class Hooks:
    """Which hooks a provider has, and how they are called. ``places``: by hook, which of the specified arguments its function
    takes (None: all, in order). ``own``: those that are not the base class's defaults."""

    places: Mapping[str, tuple[int, ...] | None]
    own: frozenset[str]


_checked: weakref.WeakKeyDictionary[type, tuple[tuple[Any, ...], Hooks]] = weakref.WeakKeyDictionary()
"""Classes whose hooks are plain methods and passed the checks: what the class had under each hook's name then."""


def checked_hooks(provider: Any) -> Hooks | None:
    """The hooks of an object of a class that passed the checks before and has not changed since, so that a session need not
    look through it again; None for others, and for an object with hooks of its own."""
    kind = type(provider)
    found = _checked.get(kind)
    if found is None or not hook_names(ProviderHooks).isdisjoint(getattr(provider, "__dict__", ())):
        return None
    then, hooks = found
    same = all((a and a()) is b for a, b in zip(then, _attributes(kind), strict=True))
    return hooks if same else None


def managed_hooks(provider: Any, manager: HookManager) -> Hooks:
    """The hooks that a manager found in a provider; kept for its class where each is a method by the hook's own name."""
    found = {name: i for name in manager.names for i in manager.implementations(name)}
    hooks = Hooks(
        {name: _places(i.argnames, manager.arguments(name)) for name, i in found.items()},
        frozenset(name for name, i in found.items() if not is_default(name, i)),
    )
    kind = type(provider)
    here = _attributes(kind)
    methods = {n: a for n, a in zip(sorted(manager.names), here, strict=True) if isinstance(a, types.FunctionType)}
    relayed = [i for name in manager.names for i in getattr(manager.hook, name).get_hookimpls()]
    same = methods.keys() == found.keys() and len(relayed) == len(found)
    if same and all(getattr(found[n].function, "__func__", None) is a for n, a in methods.items()):
        _checked[kind] = tuple(a and weakref.ref(a) for a in here), hooks  # a method may keep its class alive
    return hooks


def _attributes(kind: type) -> tuple[Any, ...]:
    """What a class has under the name of each hook, the hooks in alphabetical order."""
    spaces = [vars(each) for each in kind.__mro__]
    return tuple(next((s[name] for s in spaces if name in s), None) for name in sorted(hook_names(ProviderHooks)))


def _places(named: Sequence[str], specified: Sequence[str]) -> tuple[int, ...] | None:
    return None if tuple(named) == tuple(specified) else tuple(specified.index(name) for name in named)


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
