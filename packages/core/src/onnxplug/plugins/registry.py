"""The process-wide front: which providers there are, in which state, and their specs.

Metadata is read by the first call that needs it; a front door is imported when a provider is asked for by name, or by
``available_providers``, which asks each whether it can be used.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence

from onnxplug.contract.provider import ProviderSpec
from onnxplug.plugins import discover, names, observers
from onnxplug.plugins.load import Plugin, contract_mismatch, validate
from onnxplug.plugins.record import PluginRecord, ProviderLookupError
from onnxplug.plugins.switches import Switches

_lock = threading.RLock()
_discovered: dict[str, list[Plugin]] | None = None
_registered: dict[str, Plugin] = {}
_switches = Switches()


def records(*, load: bool = False) -> list[PluginRecord]:
    """All that is known, in default priority; ``load`` first finds out for each provider whether it can be used."""
    known = _plugins()
    return [_record(p, load) for name in names.by_priority(known) for p in known[name]]


def record(name: str, *, load: bool = False) -> PluginRecord | None:
    """What is known of one provider by its full name; None when nobody offers it."""
    plugin = _plugin(name)
    return None if plugin is None else _record(plugin, load)


def spec(name: str) -> ProviderSpec:
    """The spec of a provider that can be used here, its front door imported; ProviderLookupError that explains why it
    cannot."""
    plugin = _plugin(name)
    if plugin is None or not _record(plugin, load=True).usable:
        raise ProviderLookupError(name, explain_missing(name), plugin.record if plugin else None)
    assert plugin.spec is not None
    return plugin.spec


def announced_spec(name: str) -> ProviderSpec | None:
    """The spec of a provider that could be loaded, whether or not it can be used on this machine."""
    plugin = _plugin(name)
    if plugin is None or _record(plugin, load=True).state not in ("available", "unavailable"):
        return None
    return plugin.spec


def available_providers() -> list[str]:
    """Names of the providers that can be used here, in default priority: accelerators, third parties, CPU (then the
    oracle)."""
    return names.by_priority(r.provider for r in records(load=True) if r.usable)


def all_providers() -> list[str]:
    """Names that onnxruntime knows or that are discovered or registered, in default priority."""
    return names.by_priority([*names.ONNXRUNTIME_NAMES, *filter(None, _plugins())])


def full_name(text: str) -> str:
    """The provider a user means: ``cpu``, ``CpuExecutionProvider`` or a unique prefix; ProviderLookupError lists the
    candidates."""
    return names.full_name(text, filter(None, _plugins()))


def register_provider(spec: ProviderSpec, *, replace: bool = False) -> None:
    """Offer a provider from this process, without a distribution.

    TypeError for a spec that is not what the contract says, ValueError for another contract version and for a name that
    is taken, unless ``replace`` says that this one shall be used.
    """
    if not isinstance(spec, ProviderSpec):
        raise TypeError(f"{spec!r} is not a ProviderSpec")
    validate(spec)
    if (mismatch := contract_mismatch(spec, "")) is not None:
        raise ValueError(f"{spec.name}: {mismatch[0]}; {mismatch[1]}")
    with _lock:
        rival = _plugin(spec.name)
        if rival is not None and rival.record.state != "disabled" and not replace:
            raise ValueError(f"{spec.name} is already registered: {rival.record}")
        _registered[spec.name] = Plugin(PluginRecord(spec.name), spec=spec)


def unregister_provider(name: str) -> None:
    """Undo ``register_provider``; ValueError for a name that was not registered in process."""
    with _lock:
        if _registered.pop(name, None) is None:
            raise ValueError(f"{name} was not registered in process")


def refresh() -> None:
    """Forget what was discovered and checked: the next question reads metadata and environment anew. Imported modules
    stay imported."""
    global _discovered
    with _lock:
        discover.forget()
        observers.forget(discovered=True)
        _discovered = None
        for name, plugin in _registered.items():
            _registered[name] = Plugin(PluginRecord(name), spec=plugin.spec)


def explain_missing(name: str) -> str:
    """Why a provider of this name cannot be used, and what to do about it; one line."""
    known = record(name, load=True)
    if known is not None:
        return str(known)
    candidates = [*filter(None, _plugins()), *names.DISTRIBUTIONS, *names.ONNXRUNTIME_NAMES]
    if not _switches.autoload:
        return f"{name} is not registered, and discovery is switched off by ONNXPLUG_AUTOLOAD=0"
    if name in names.DISTRIBUTIONS:
        return f"{name} is not installed. To fix: pip install {names.DISTRIBUTIONS[name]}"
    if name in names.ONNXRUNTIME_NAMES:
        return f"{name} is not installed: onnxruntime knows this name, but no distribution here offers it to onnxplug"
    guess = names.similar(name, candidates)
    return f"No provider is called {name}" + (f"; did you mean {guess}?" if guess else "")


def _record(plugin: Plugin, load: bool) -> PluginRecord:
    return plugin.load(_switches.import_timeout) if load else plugin.record


def _plugin(name: str) -> Plugin | None:
    """The plugin that answers for a name: the one in use, else the first that is not."""
    claims = _plugins().get(name)
    if not claims:
        return None
    return next((p for p in claims if p.record.state != "disabled"), claims[0])


def _plugins() -> Mapping[str, Sequence[Plugin]]:
    """Plugins by provider; what is registered in process takes the place of what was discovered."""
    global _discovered, _switches
    with _lock:
        if _discovered is None:
            _switches = Switches.read()
            _discovered = _discover(_switches) if _switches.autoload else {}
        return {**_discovered, **{name: [plugin] for name, plugin in _registered.items()}}


def _discover(switches: Switches) -> dict[str, list[Plugin]]:
    found = [f for f in discover.scan() if f.group == discover.PROVIDERS]
    plugins: dict[str, list[Plugin]] = defaultdict(list)
    for each, judged in zip(found, discover.judge([f.record for f in found], switches), strict=True):
        plugins[judged.provider].append(Plugin(judged, each.entry_point))
    return dict(plugins)
