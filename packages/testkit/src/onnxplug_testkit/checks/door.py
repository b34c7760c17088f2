"""L0, the front door: what importing it costs and changes. Each looks at a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from typing import Any

from onnxplug_testkit.check import Unsupported, check
from onnxplug_testkit.subject import Subject

IMPORT_SECONDS = 60
LIGHT = frozenset({"onnxplug", "numpy", "pluggy", "ml_dtypes", "typing_extensions"})
"""What a front door may import besides the standard library and its own distribution."""

_PROGRAM = """
import json, os, signal, sys, threading, warnings, logging, locale
import numpy, onnxplug.contract
def state():
    return {
        "environment variables": dict(os.environ), "the working directory": os.getcwd(), "the number of threads": threading.active_count(),
        "warning filters": repr(warnings.filters), "handlers of the root logger": repr(logging.getLogger().handlers),
        "the locale": locale.setlocale(locale.LC_ALL), "sys.path": list(sys.path), "the recursion limit": sys.getrecursionlimit(),
        "handling of SIGINT": repr(signal.getsignal(signal.SIGINT)), "NumPy's error state": repr(numpy.geterr()),
    }
before, modules = state(), set(sys.modules)
module = __import__(sys.argv[1], fromlist=["onnxplug_provider"])
spec_of = lambda: [s for a in [module.onnxplug_provider()] for s in ([a] if hasattr(a, "check") else a) if s.name == sys.argv[2]][0]
if sys.argv[3] == "check":
    spec_of().check()
after = state()
print("\\n" + json.dumps({
    "changed": [k for k in before if before[k] != after[k]],
    "modules": sorted({m.partition(".")[0] for m in set(sys.modules) - modules if getattr(sys.modules[m], "__spec__", None)}),
}))
"""


def _observe(subject: Subject, stage: str) -> Mapping[str, Any]:
    if not subject.module:
        raise Unsupported("distribution")
    command = [sys.executable, "-c", _PROGRAM, subject.module, subject.name, stage]
    done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False)
    assert done.returncode == 0, f"importing {subject.module} fails: {done.stderr.strip().splitlines()[-1:]}"
    *printed, answer = done.stdout.rstrip().split("\n")
    found: dict[str, Any] = json.loads(answer)
    found["printed"] = "\n".join(printed).strip() + done.stderr
    return found


@check("contract.light_import")
def light_import(subject: Subject, seed: int) -> None:
    """The front door imports the standard library, NumPy, onnxplug and its own distribution only; no device library."""
    allowed = LIGHT | {subject.module.partition(".")[0]} | set(sys.stdlib_module_names)
    known = packages_distributions()
    heavy = [
        m for m in _observe(subject, "import")["modules"] if m not in allowed and m in known and not m.startswith("_")
    ]
    assert not heavy, f"importing {subject.module} imports {', '.join(heavy)}; import it when the provider is created"


@check("contract.import_changes_nothing")
def import_changes_nothing(subject: Subject, seed: int) -> None:
    """Importing the front door prints nothing and changes nothing in the process."""
    found = _observe(subject, "import")
    assert not found["changed"], f"importing {subject.module} changes {', '.join(found['changed'])}"
    assert not found["printed"], f"importing {subject.module} prints {found['printed']!r}"


@check("contract.check_changes_nothing")
def check_changes_nothing(subject: Subject, seed: int) -> None:
    """``check()`` prints nothing and changes nothing in the process."""
    found = _observe(subject, "check")
    assert not found["changed"], f"check() changes {', '.join(found['changed'])}"
    assert not found["printed"], f"check() prints {found['printed']!r}"
