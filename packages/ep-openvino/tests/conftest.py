"""OpenVINO has no wheels for some systems and versions of Python: there is nothing to test there."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("openvino") is None:
    pytest.skip("openvino is not installed", allow_module_level=True)
