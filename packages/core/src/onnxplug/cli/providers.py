"""``onnxplug providers``: what is installed, in which state, with which devices and options."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

from onnxplug.cli.output import Output
from onnxplug.contract.options import parse_options
from onnxplug.contract.provider import ProviderSpec
from onnxplug.plugins import PluginRecord, registry
from onnxplug.plugins.bounded import bounded
from onnxplug.plugins.record import describe
from onnxplug.plugins.switches import Switches, short

STATE_COLOURS = {"available": "green", "unavailable": "yellow", "disabled": "dim"}
"""States that are no defect; all others are red."""


def execute(args: argparse.Namespace, out: Output) -> int:
    """Print every provider."""
    providers = [_provider(record) for record in registry.records(load=True)]
    if out.as_json:
        out.json({"providers": providers})
    elif providers:
        for provider in providers:
            _show(provider, out)
    else:
        out.line("No provider is installed. To fix: pip install onnxplug-ep-cpu")
    return 0


def _provider(record: PluginRecord) -> dict[str, Any]:
    spec = registry.announced_spec(record.provider) if record.state in ("available", "unavailable") else None
    return {
        "name": record.provider,
        "short": short(record.provider),
        "state": record.state,
        "detail": record.detail,
        "error": record.error,
        "fix": record.fix,
        "distribution": record.distribution,
        "version": record.version,
        "entry_point": record.entry_point,
        **_announced(spec),
    }


def _announced(spec: ProviderSpec | None) -> dict[str, Any]:
    if spec is None:
        unknown = dict.fromkeys(("vendor", "device_kind", "contract", "devices_error"))
        return {**unknown, "devices": [], "options": []}
    devices, error = [], None
    try:
        found = bounded(lambda: list(spec.devices()), Switches.read().import_timeout)
        devices = [
            {**dataclasses.asdict(device), "metadata": dict(device.metadata), "options": dict(device.options)}
            for device in found
        ]
    except Exception as raised:
        error = describe(raised)
    contract = ".".join(map(str, spec.contract))
    return {
        "vendor": spec.vendor,
        "device_kind": spec.device_kind,
        "contract": contract,
        "devices": devices,
        "devices_error": error,
        "options": _options(spec.options),
    }


def _options(cls: type) -> list[dict[str, Any]]:
    hints = get_type_hints(cls)
    defaults: Any = parse_options(cls, {})
    return [
        {
            "name": field.name,
            "type": _type_name(hints[field.name]),
            "default": getattr(defaults, field.name),
            "choices": list(field.metadata.get("choices") or _literals(hints[field.name])),
            "doc": field.metadata.get("doc", ""),
        }
        for field in dataclasses.fields(cls)
    ]


def _type_name(hint: Any) -> str:
    """``int``, ``int | None``; the type of its values for a Literal."""
    values = _literals(hint)
    return type(values[0]).__name__ if values else hint.__name__ if isinstance(hint, type) else str(hint)


def _literals(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _show(provider: dict[str, Any], out: Output) -> None:
    state = provider["state"]
    source = f"{provider['distribution']} {provider['version']}".strip() or "registered in process"
    name = (provider["name"] or "a plugin", "bold")
    out.line(name, f" ({provider['short']})  ", (state, STATE_COLOURS.get(state, "red")), f"  {source}")
    if provider["detail"]:
        out.line(f"  {provider['detail']}")
    if provider["error"]:
        out.line(f"  why: {provider['error']}")
    if provider["fix"]:
        out.line(f"  fix: {provider['fix']}")
    for device in provider["devices"]:
        more = ", ".join(f"{key}={value}" for key, value in device["metadata"].items())
        description = " ".join(filter(None, (device["vendor"], device["name"], more)))
        out.line(f"  device {device['type']} {device['id']}: {description}")
    if provider["devices_error"]:
        out.line(("  its devices cannot be listed: ", "red"), provider["devices_error"])
    if provider["options"] and state == "available":
        rows = [[f"  {o['name']}", o["type"], _written(o["default"]), _meaning(o)] for o in provider["options"]]
        out.table(["  option", "type", "default", "meaning"], rows)
    out.line()


def _written(default: Any) -> str:
    """A default as it is given on the command line."""
    if isinstance(default, bool):
        return str(int(default))
    return "" if default is None else str(default)


def _meaning(option: dict[str, Any]) -> str:
    choices = f" ({', '.join(option['choices'])})" if option["choices"] else ""
    return f"{option['doc']}{choices}"
