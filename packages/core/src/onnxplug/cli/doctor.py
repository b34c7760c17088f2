"""``onnxplug doctor``: what became of every plugin, on which devices the usable ones work, what the environment switches, which versions
are at work."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from onnxplug import __version__
from onnxplug.cli.failure import FAILED
from onnxplug.cli.output import Output, count
from onnxplug.cli.providers import STATE_COLOURS
from onnxplug.contract.provider import CONTRACT_VERSION
from onnxplug.plugins import PluginRecord, registry
from onnxplug.plugins.observers import observer_records
from onnxplug.plugins.switches import Switches, short

SWITCHES = (
    "ONNXPLUG_PROVIDERS", "ONNXPLUG_DISABLE", "ONNXPLUG_AUTOLOAD", "ONNXPLUG_TRACE", "ONNXPLUG_IMPORT_TIMEOUT",
)  # fmt: skip
_OTHERS = ("ONNXPLUG_CACHE", "ONNXPLUG_CACHE_DIR", "ONNXPLUG_PROGRESS")
_NEEDED = ("numpy", "onnx", "pluggy", "ml_dtypes", "rich")
_DEFECTS = ("broken", "outdated", "clashing")


def execute(args: argparse.Namespace, out: Output) -> int:
    """Print the findings; FAILED when something is broken."""
    report = examine()
    if out.as_json:
        out.json(report)
    else:
        _show(report, out)
    return 0 if report["healthy"] else FAILED


def examine() -> dict[str, Any]:
    """Everything ``doctor`` knows. ``problems`` make it unhealthy, ``notes`` do not."""
    records = [*registry.records(load=True), *observer_records()]
    versions = _versions()
    problems = [str(r) for r in records if r.state in _DEFECTS]
    problems += [f"{name} is not installed. To fix: pip install {name}" for name in _NEEDED if versions[name] is None]
    if not any(r.usable for r in records if r.kind == "provider"):
        problems.append("No provider can be used. To fix: pip install onnxplug-ep-cpu")
    switches = {name: value for name, value in sorted(os.environ.items()) if name.startswith("ONNXPLUG_")}
    return {
        "healthy": not problems,
        "problems": problems,
        "notes": _notes(switches, records),
        "plugins": [r.to_dict() for r in records],
        "environment": switches,
        "versions": versions,
        "system": {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
    }


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {
        "python": platform.python_version(),
        "onnxplug": __version__,
        "contract": ".".join(map(str, CONTRACT_VERSION)),
    }
    for name in _NEEDED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _notes(switches: dict[str, str], records: list[PluginRecord]) -> list[str]:
    """Settings that have no effect and are likely not meant."""
    known = {short(r.provider) for r in records}
    own = tuple(f"ONNXPLUG_{name.upper()}_" for name in known)  # what the providers themselves read
    read = (*SWITCHES, *_OTHERS)
    notes = [
        f"{name} is not a switch of onnxplug ({', '.join(read)})"
        for name in switches
        if name not in read and not name.startswith(own)
    ]
    for entry in Switches.read().allow or ():
        name = entry.partition("@")[0]
        if short(name) not in known:
            notes.append(f"ONNXPLUG_PROVIDERS names {entry}, which no installed distribution offers")
    return notes


def _cpu() -> str:
    """The processor's name."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        name = ""
    return name or platform.processor() or platform.machine()


def _show(report: dict[str, Any], out: Output) -> None:
    plugins = report["plugins"]
    if report["healthy"]:
        usable = sum(p["state"] == "available" for p in plugins)
        out.line(("healthy", "bold green"), f": {count(len(plugins), 'plugin')}, {usable} usable")
    else:
        out.line((f"{count(len(report['problems']), 'problem')}", "bold red"))
        for problem in report["problems"]:
            out.line(f"  {problem}")
    for note in report["notes"]:
        out.line(("note: ", "yellow"), note)
    if plugins:
        out.heading("Plugins")
        out.table(["plugin", "kind", "state", "stage", "import", "from"], [_row(p) for p in plugins], right=[4])
        _show_reasons(plugins, out)
    found = [(p["provider"], p["detail"]) for p in plugins if p["state"] == "available" and p["detail"]]
    if found:
        out.heading("Devices")
        for provider, detail in found:
            out.line((f"{provider}: ", "bold"), detail)
    out.heading("Environment")
    for name, value in report["environment"].items():
        out.line(f"{name}={value}")
    if not report["environment"]:
        out.line("no switch is set")
    out.heading("Versions")
    out.line(", ".join(f"{name} {version or '(missing)'}" for name, version in report["versions"].items()))
    system = report["system"]
    out.line(f"{system['cpu']}, {system['usable_cores']} of {count(system['cores'], 'core')}, {system['platform']}")


def _row(plugin: dict[str, Any]) -> list[str | tuple[str, str]]:
    seconds = plugin["import_seconds"]
    source = f"{plugin['distribution']} {plugin['version']}".strip() or "registered in process"
    return [
        plugin["provider"] or "(unreadable)",
        plugin["kind"],
        (plugin["state"], STATE_COLOURS.get(plugin["state"], "red")),
        plugin["stage"],
        "" if seconds is None else f"{seconds * 1e3:.0f} ms",
        source,
    ]


def _show_reasons(plugins: Sequence[dict[str, Any]], out: Output) -> None:
    """Each reason with those whom it concerns: a distribution may have many providers for want of one thing."""
    by_error: dict[str, list[dict[str, Any]]] = {}
    for plugin in plugins:
        if plugin["error"]:
            by_error.setdefault(plugin["error"], []).append(plugin)
    for error, concerned in by_error.items():
        names = [plugin["provider"] or plugin["distribution"] for plugin in concerned]
        if len(concerned) == 1:
            out.line((f"{names[0]}: ", "bold"), error)
            if concerned[0]["fix"]:
                out.line(f"  fix: {concerned[0]['fix']}")
            continue
        out.line((f"{count(len(concerned), 'provider')}: ", "bold"), error)
        rows = [[f"  {name}", plugin["fix"]] for name, plugin in zip(names, concerned, strict=True)]
        out.table(["  provider", "fix" if any(plugin["fix"] for plugin in concerned) else ""], rows)
