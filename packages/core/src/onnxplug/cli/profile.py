"""A profile's events added up by operator and provider."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any


def operators(path: str, warmup: int) -> list[dict[str, Any]]:
    """The slowest operators first: op_type, provider, seconds and calls per run, share of the whole.

    The first ``warmup`` runs do not count, nor do If, Loop and Scan, whose bodies' nodes are counted themselves, and regions
    and nodes of which the time of their parts is known, whose parts count.
    """
    events = json.loads(Path(path).read_text(encoding="utf-8"))
    runs = sorted(e["ts"] for e in events if e["name"] == "model_run")
    start = runs[warmup] if warmup < len(runs) else 0
    counted = max(1, len(runs) - warmup)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str], int] = defaultdict(int)
    parted = {event["args"]["region"] for event in events if event["cat"] == "Kernel"}
    for event in events:
        if event["cat"] == "Session" or event["ts"] < start:
            continue
        counts = event["cat"] == "Kernel" or event["args"].get("node_name") not in parted
        if counts and event["args"].get("form") != "control":
            key = event["args"]["op_name"], event["args"]["provider"]
            seconds[key] += event["dur"] * 1e-6
            calls[key] += 1
    total = sum(seconds.values()) or 1.0
    return [
        {
            "op_type": op_type,
            "provider": provider,
            "seconds": seconds[op_type, provider] / counted,
            "calls": calls[op_type, provider] / counted,
            "share": seconds[op_type, provider] / total,
        }
        for op_type, provider in sorted(seconds, key=lambda key: -seconds[key])
    ]
