"""L0, the front door: what importing it costs and changes. Each looks at a fresh interpreter."""

from __future__ import annotations

import json
import os
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
did = {"libraries": [], "files": [], "processes": [], "connections": []}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
def watch(event, given):
    if event == "ctypes.dlopen" and given[0]:
        did["libraries"].append(str(given[0]))
    elif event == "open" and isinstance(given[0], (str, bytes)) and given[0] != os.devnull and (
        set(given[1] or "") & set("wax+") or (given[2] or 0) & WRITES
    ):
        did["files"].append(os.fsdecode(given[0]))
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link", "os.truncate"):
        did["files"].append(str(given[0]))
    elif event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "os.forkpty"):
        did["processes"].append(str(given[0] if given else event))
    elif event in ("socket.connect", "socket.bind", "socket.getaddrinfo"):
        did["connections"].append(str(given[-1] if event != "socket.getaddrinfo" else given[0]))
before, modules = state(), set(sys.modules)
sys.addaudithook(watch)
module = __import__(sys.argv[1], fromlist=["onnxplug_provider"])
spec_of = lambda: [s for a in [module.onnxplug_provider()] for s in ([a] if hasattr(a, "check") else a) if s.name == sys.argv[2]][0]
if sys.argv[3] == "check":
    spec_of().check()
after, seen = state(), {what: list(dict.fromkeys(found)) for what, found in did.items()}
print("\\n" + json.dumps({
    **seen,
    "changed": [k for k in before if before[k] != after[k]],
    "modules": sorted({m.partition(".")[0] for m in set(sys.modules) - modules if getattr(sys.modules[m], "__spec__", None)}),
}))
"""


def _observe(subject: Subject, stage: str) -> Mapping[str, Any]:
    if not subject.module:
        raise Unsupported("distribution")
    command = [sys.executable, "-B", "-c", _PROGRAM, subject.module, subject.name, stage]
    uncached = {**os.environ, "ONNXPLUG_CACHE": "0"}  # what the core keeps is no file of the provider's
    done = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_SECONDS, check=False, env=uncached)
    assert done.returncode == 0, f"importing {subject.module} fails: {done.stderr.strip().splitlines()[-1:]}"
    *printed, answer = done.stdout.rstrip().split("\n")
    found: dict[str, Any] = json.loads(answer)
    found["printed"] = "\n".join(printed).strip() + done.stderr
    return found


@check("contract.light_import")
def light_import(subject: Subject, seed: int) -> None:
    """The front door imports the standard library, NumPy, onnxplug and its own distribution only, and loads no library of a device."""
    allowed = LIGHT | {subject.module.partition(".")[0]} | set(sys.stdlib_module_names)
    known = packages_distributions()
    found = _observe(subject, "import")
    heavy = [m for m in found["modules"] if m not in allowed and m in known and not m.startswith("_")]
    assert not heavy, f"importing {subject.module} imports {', '.join(heavy)}; import it when the provider is created"
    loaded = ", ".join(found["libraries"])
    assert not loaded, f"importing {subject.module} loads {loaded}; load it when check() or create() is called"


@check("contract.import_changes_nothing")
def import_changes_nothing(subject: Subject, seed: int) -> None:
    """Importing the front door prints nothing, changes nothing in the process, writes no file, starts no process and connects to nobody."""
    found = _observe(subject, "import")
    for what, does in (("files", "writes"), ("processes", "starts"), ("connections", "connects to")):
        assert not found[what], f"importing {subject.module} {does} {', '.join(found[what])}"
    assert not found["changed"], f"importing {subject.module} changes {', '.join(found['changed'])}"
    assert not found["printed"], f"importing {subject.module} prints {found['printed']!r}"


@check("contract.check_changes_nothing")
def check_changes_nothing(subject: Subject, seed: int) -> None:
    """``check()`` prints nothing, changes nothing in the process and writes no file."""
    found = _observe(subject, "check")
    assert not found["files"], f"check() writes {', '.join(found['files'])}"
    assert not found["changed"], f"check() changes {', '.join(found['changed'])}"
    assert not found["printed"], f"check() prints {found['printed']!r}"
