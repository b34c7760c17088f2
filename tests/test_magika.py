"""A published program written for onnxruntime, magika, gives its known answers with onnxplug in onnxruntime's place."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib

import pytest

SAMPLES = {
    "python": b"import os\n\ndef main(argv):\n    for i, a in enumerate(argv):\n        print(i, a)\n    return 0\n"
    * 4,
    "html": b"<!DOCTYPE html><html><head><title>t</title></head><body><p class='x'>hello</p></body></html>\n" * 4,
    "c": b'#include <stdio.h>\nint main(void){ printf("%d\\n", 42); return 0; }\n' * 5,
    "json": json.dumps({"a": [1, 2, {"b": None}], "name": "x" * 50}).encode(),
    "csv": b"id,name,value\n" + b"".join(b"%d,n%d,%d\n" % (i, i, i * i) for i in range(200)),
    "markdown": b"# Title\n\nSome *text* with a [link](http://x.y).\n\n- a\n- b\n\n```py\nprint(1)\n```\n" * 3,
    "zlibstream": zlib.compress(bytes(range(256)) * 40),
}
# What onnxruntime 1.31.1 answers with magika 1.0.3.
SCORES = {
    "python": 0.9996, "html": 0.9796, "c": 0.9936, "json": 0.7821, "csv": 1.0, "markdown": 0.9973, "zlibstream": 0.8158
}  # fmt: skip
PROGRAM = """
import json, sys
import onnxplug
sys.modules["onnxruntime"] = onnxplug
from magika import Magika
magika = Magika()
samples = [bytes.fromhex(text) for text in json.load(sys.stdin)]
results = [magika.identify_bytes(sample) for sample in samples]
assert not any(name.startswith("onnxruntime.") for name in sys.modules)
print(json.dumps([[str(result.dl.label), result.score] for result in results]))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[str, float]]:
    """Label and score of each sample, from a process of its own: onnxplug stands in for onnxruntime there only."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([sample.hex() for sample in SAMPLES.values()]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(SAMPLES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("expected", SAMPLES)
def test_magika_recognises(answers: dict[str, tuple[str, float]], expected: str) -> None:
    label, score = answers[expected]
    assert label == expected
    assert score == pytest.approx(SCORES[expected], abs=2e-4)
