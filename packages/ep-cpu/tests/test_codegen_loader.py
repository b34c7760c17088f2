"""Object files loaded without LLVM: what they compute, and what is left to LLVM."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.loader import SUPPORTED, Code, Loaded, Refused
from onnxplug_ep_cpu.codegen.target import host_target

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="capability: objects for x86-64 Linux")

HALVES = """
define float @half(float %x) {
  %y = fmul float %x, 5.0e-1
  %z = fadd float %y, 1.25e-1
  ret float %z
}
"""
FILLED = """
declare ptr @memset(ptr, i32, i64)
define void @fill(ptr %to, i64 %n) {
  %r = call ptr @memset(ptr %to, i32 7, i64 %n)
  ret void
}
"""
COUNTED = """
@seen = internal global i64 0
define i64 @count() {
  %a = load i64, ptr @seen
  %b = add i64 %a, 1
  store i64 %b, ptr @seen
  ret i64 %b
}
"""
STRANGE = """
declare float @unheard_of(float)
define float @ask(float %x) {
  %y = call float @unheard_of(float %x)
  ret float %y
}
"""


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(host_target(), None)


def half(code: Code) -> float:
    return ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.get_function_address("half"))(3.0)


def test_code_finds_its_constants_and_libc(compiler: Compiler) -> None:
    loaded = Loaded([compiler.compile(FILLED), compiler.compile(HALVES)])
    assert half(loaded) == 1.625
    to = np.zeros(100, np.uint8)
    fill = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(loaded.get_function_address("fill"))
    fill(to.ctypes.data, 99)
    assert (to[:99] == 7).all() and to[99] == 0
    assert loaded.get_function_address("memset") == loaded.get_function_address("nothing") == 0


@pytest.mark.parametrize("text", [COUNTED, STRANGE])
def test_what_it_does_not_know_is_refused(compiler: Compiler, text: str) -> None:
    with pytest.raises(Refused):
        Loaded([compiler.compile(text)])
    with pytest.raises(Refused, match="ELF"):
        Loaded([b"MZ" + bytes(100)])


def test_what_is_refused_llvm_loads(compiler: Compiler) -> None:
    code = compiler.load(COUNTED)
    count = ctypes.CFUNCTYPE(ctypes.c_int64)(code.get_function_address("count"))
    assert [count(), count()] == [1, 2]


def test_a_process_that_compiles_nothing_loads_neither_llvm_nor_the_catalogue(tmp_path: Path) -> None:
    program = (
        "import sys; import numpy as np; import onnxplug; from onnx import parser\n"
        "model = parser.parse_model('<ir_version: 8, opset_import: [\"\" : 17]> g (float[9] x) => (float[9] y)'\n"
        "    ' { a = Exp(x) y = Tanh(a) }')\n"
        "session = onnxplug.InferenceSession(model.SerializeToString(), providers=['CPUExecutionProvider'])\n"
        "x = np.linspace(-2, 2, 9).astype(np.float32)\n"
        "np.testing.assert_allclose(session.run(None, {'x': x})[0], np.tanh(np.exp(x)), rtol=1e-5)\n"
        "assert session.explain().regions\n"
        "print('llvmlite.' in open('/proc/self/maps').read(), 'llvmlite.binding' in sys.modules,\n"
        "      'onnxplug_kernels' in sys.modules)\n"
    )
    environment = {**os.environ, "ONNXPLUG_CACHE_DIR": str(tmp_path), "ONNXPLUG_CACHE": "1"}
    said = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [each.stdout.strip() for each in said] == ["True False True", "False False False"]
