"""A process of its own for checks that compare processes: ``python -m onnxplug_testkit.apart MODULE PROVIDER OPTIONS FOLDER``.

It opens a session of each model in FOLDER, runs it on what lies beside it, prints a line of JSON and ends without closing anything.
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
import onnx

ENDED = 7
"""The exit status of a process that came to its end."""
_opened: list[Any] = []


def main(module: str, provider: str, options: str, folder: str) -> None:
    """SystemExit with ENDED."""
    from onnxplug_testkit.models import open_session
    from onnxplug_testkit.subject import Subject

    answer = importlib.import_module(module).onnxplug_provider()
    specs: Sequence[Any] = answer if isinstance(answer, Sequence) else [answer]
    subject = Subject(next(spec for spec in specs if spec.name == provider), json.loads(options))
    subject.announce()
    found = []
    for path in sorted(Path(folder).glob("*.onnx")):
        feeds = dict(np.load(path.with_suffix(".npz")))
        _opened.append(open_session(subject, onnx.load(path)))
        bits = b"".join(np.ascontiguousarray(result).tobytes() for result in _opened[-1].run(None, feeds))
        found.append({"placement": _opened[-1].placement(), "bits": hashlib.sha256(bits).hexdigest()})
    print(json.dumps(found), flush=True)
    sys.exit(ENDED)


if __name__ == "__main__":
    main(*sys.argv[1:])
