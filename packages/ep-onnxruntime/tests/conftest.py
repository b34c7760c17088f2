"""onnxruntime is a tool of the tests: without one there is nothing to bridge to."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")
