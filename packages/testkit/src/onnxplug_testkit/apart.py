"""A process of its own for checks that compare processes: ``python -P apart.py MODULE PROVIDER OPTIONS FOLDER``.

It opens a session of each model in FOLDER, the CPU provider behind the one that is judged, runs it on what lies beside it, leaves the
results there, prints a line of JSON and ends without closing anything. It is run by its path and imports neither the kit nor pytest, so
that a provider that looks for them finds what any program has.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ENDED = 7
"""The exit status of a process that came to its end."""
CPU = "CPUExecutionProvider"
_opened: list[Any] = []


def main(module: str, provider: str, options: str, folder: str) -> None:
    """SystemExit with ENDED."""
    import onnxplug
    from onnxplug.plugins import registry

    answer = importlib.import_module(module).onnxplug_provider()
    specs: Sequence[Any] = answer if isinstance(answer, Sequence) else [answer]
    registry.register_provider(next(spec for spec in specs if spec.name == provider), replace=True)
    found = []
    for path in sorted(Path(folder).glob("*.onnx")):
        feeds = dict(np.load(path.with_suffix(".npz")))
        settings = onnxplug.SessionOptions()
        settings.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.log_severity_level = 4
        settings.add_session_config_entry("session.strict_providers", "1")
        providers: list[Any] = [(provider, json.loads(options)), *([CPU] if provider != CPU else [])]
        session = onnxplug.InferenceSession(str(path), settings, providers=providers, enable_fallback=0)
        _opened.append(session)
        results = session.run(None, feeds)
        np.savez(path.with_suffix(".results.npz"), *results)
        bits = b"".join(np.ascontiguousarray(result).tobytes() for result in results)
        found.append({"placement": session.placement(), "bits": hashlib.sha256(bits).hexdigest()})
    print(json.dumps(found), flush=True)
    sys.exit(ENDED)


if __name__ == "__main__":
    main(*sys.argv[1:])
