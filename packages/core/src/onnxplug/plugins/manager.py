"""pluggy's plugin manager for hooks that need no decorator, and the one of the process."""

from __future__ import annotations

import functools
import inspect
import threading
import types

import pluggy

from onnxplug.contract.hooks import PROJECT, PluginHooks, ProviderHooks

FUNCTIONS = (types.FunctionType, types.MethodType, classmethod, staticmethod)
_UNDECORATED: pluggy.HookimplOpts = {
    "wrapper": False,
    "hookwrapper": False,
    "optionalhook": False,
    "tryfirst": False,
    "trylast": False,
    "specname": None,
}
_registering = threading.Lock()


class HookManager(pluggy.PluginManager):
    """Counts every function of a plugin that is named in the specification as its implementation.

    ``@hookimpl`` stays possible; it turns a name that is not in the specification into an error of ``check_pending``.
    """

    def __init__(self, specification: type) -> None:
        super().__init__(PROJECT)
        self.add_hookspecs(specification)
        self.names = hook_names(specification)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        # looked up statically: a property of the plugin must not run here
        if not isinstance(inspect.getattr_static(plugin, name, None), FUNCTIONS):
            return None
        decorated = super().parse_hookimpl_opts(plugin, name)
        if decorated is not None or name not in self.names:
            return decorated
        return _UNDECORATED.copy()

    def implementations(self, hook: str) -> list[pluggy.HookImpl]:
        """The implementations of a hook in order of registration, wrappers left out."""
        found: list[pluggy.HookImpl] = getattr(self.hook, hook).get_hookimpls()
        return [i for i in found if not (i.wrapper or i.hookwrapper)]

    def arguments(self, hook: str) -> tuple[str, ...]:
        """The arguments a hook is specified with, in order."""
        specification = getattr(self.hook, hook).spec
        return tuple(specification.argnames)


@functools.cache
def hook_names(specification: type) -> frozenset[str]:
    """The hooks that a specification class declares."""
    return frozenset(name for name, member in vars(specification).items() if hasattr(member, f"{PROJECT}_spec"))


@functools.cache
def hook_arguments(hook: str) -> tuple[str, ...]:
    """The arguments a provider's hook is specified with, in order."""
    return tuple(inspect.signature(getattr(ProviderHooks, hook)).parameters)[1:]


@functools.cache
def process_manager() -> HookManager:
    """The manager of all plugin modules that were loaded in this process."""
    return HookManager(PluginHooks)


def register(plugin: object, name: str | None = None) -> None:
    """Register a plugin with the process's manager; PluginValidationError for an unknown hook or a wrong signature,
    then it is not."""
    with _registering:
        manager = process_manager()
        if _is_registered(manager, plugin):
            return
        trial = HookManager(PluginHooks)
        trial.register(plugin, name)
        trial.check_pending()
        manager.register(plugin, name)


def unregister(plugin: object) -> None:
    """Forget a plugin; one that is not registered is an error (ValueError)."""
    with _registering:
        manager = process_manager()
        if not _is_registered(manager, plugin):
            raise ValueError(f"{plugin!r} is not registered")
        manager.unregister(plugin)


def _is_registered(manager: HookManager, plugin: object) -> bool:
    return any(plugin is known for _, known in manager.list_name_plugin())
