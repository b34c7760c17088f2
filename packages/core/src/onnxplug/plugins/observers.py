"""Who listens to sessions: modules of entry-point group ``onnxplug.observers``, provider modules that have an observer
hook, and what is registered in process.

::

    for tell in observers_for("onnxplug_run_start"):
        tell(session=session, options=options)

An observer takes as many of the hook's arguments as it names. One that raises is not called again in this process; a
warning names it.
"""

from __future__ import annotations

import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from onnxplug.contract.hooks import PluginHooks
from onnxplug.plugins import discover, manager
from onnxplug.plugins.bounded import TooSlow, bounded
from onnxplug.plugins.record import PluginRecord, describe
from onnxplug.plugins.switches import Switches

HOOKS = manager.hook_names(PluginHooks) - {"onnxplug_provider"}
Tell = Callable[..., None]

_table: dict[str, tuple[Tell, ...]] | None = None
_records: list[PluginRecord] | None = None
_installed: list[object] = []
_silenced: list[object] = []
_lock = threading.RLock()


def observers_for(hook: str) -> tuple[Tell, ...]:
    """Those who listen to ``hook``, to be called with all its arguments by name; ``()`` when nobody does. They never
    raise.

    Observers are loaded by the first call.
    """
    table = _table
    if table is None:
        table = _listen()
    return table.get(hook, ())


def register_observer(plugin: object, name: str | None = None) -> None:
    """Let a module or object with functions named as observer hooks listen. ValueError if it has none,
    PluginValidationError for a function whose arguments the hook does not have."""
    if not any(callable(getattr(plugin, hook, None)) for hook in HOOKS):
        raise ValueError(f"{plugin!r} has none of {', '.join(sorted(HOOKS))}")
    manager.register(plugin, name)
    forget()


def unregister_observer(plugin: object) -> None:
    """Undo ``register_observer``; ValueError for one that is not registered."""
    manager.unregister(plugin)
    with _lock:
        _silenced[:] = [s for s in _silenced if s is not plugin]
    forget()


def observer_records() -> list[PluginRecord]:
    """What became of the observers that are installed."""
    return list(_loaded())


def forget(*, discovered: bool = False) -> None:
    """Make the next ``observers_for`` collect the listeners anew, with ``discovered`` also look for installed ones."""
    global _table, _records
    with _lock:
        _table = None
        if discovered:
            _records = None
            for plugin in _installed:
                manager.unregister(plugin)
            _installed.clear()


def _listen() -> dict[str, tuple[Tell, ...]]:
    global _table
    _loaded()
    with _lock:
        listeners: dict[str, list[Tell]] = defaultdict(list)
        for hook in HOOKS:
            for found in manager.process_manager().implementations(hook):
                if not any(found.plugin is s for s in _silenced):
                    listeners[hook].append(
                        _Listener(hook, found.plugin_name, found.plugin, found.function, found.argnames)
                    )
        _table = {hook: tuple(tells) for hook, tells in listeners.items()}
        return _table


def _loaded() -> list[PluginRecord]:
    """The records of installed observers, which the first call loads. No lock is held meanwhile: an observer may use
    this module while it is imported, and other threads do with those that are there already."""
    global _records
    with _lock:
        if _records is not None:
            return _records
        records = _records = []
    switches = Switches.read()
    for found in discover.scan() if switches.autoload else ():
        if found.group == discover.OBSERVERS and found.entry_point is not None:
            records.append(_load_one(found.record, found.entry_point.load, switches))
            forget()
    return records


def _load_one(record: PluginRecord, load: Callable[[], object], switches: Switches) -> PluginRecord:
    if (reason := switches.disables(record.provider, record.distribution)) is not None:
        return replace(record, state="disabled", error=reason)
    try:
        plugin = bounded(load, switches.import_timeout)
        manager.register(plugin)
        with _lock:
            _installed.append(plugin)
        return replace(record, state="available", stage="announce")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = f"import {error}" if isinstance(error, TooSlow) else describe(error)
        fix = f"upgrade {record.distribution}, or switch it off: ONNXPLUG_DISABLE={record.provider}"
        record = replace(record, state="broken", stage="import", error=text, fix=fix)
        warnings.warn(f"observer {record}", RuntimeWarning, stacklevel=2)
        return record


class _Listener:
    """One observer's function, which is silenced by its first exception."""

    __slots__ = ("_arguments", "_function", "_hook", "_name", "_plugin", "_silent")

    def __init__(
        self, hook: str, name: str, plugin: object, function: Callable[..., object], arguments: Sequence[str]
    ) -> None:
        self._hook, self._name, self._plugin, self._function, self._arguments = hook, name, plugin, function, arguments
        self._silent = False

    def __call__(self, **arguments: Any) -> None:
        if self._silent:
            return
        try:
            self._function(**{name: arguments[name] for name in self._arguments})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._silent = True
            with _lock:
                _silenced.append(self._plugin)
            forget()
            text = f"observer {self._name} is disabled: {self._hook} raised {describe(error)}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
