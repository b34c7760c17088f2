"""A library that has cuBLAS's names: it judges the arguments of products as cuBLAS does, and multiplies nothing."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

_JUDGED = """
typedef long long i64;
static int most(int a, int b) { return a > b ? a : b; }
/* CUBLAS_STATUS_INVALID_VALUE and _NOT_SUPPORTED, by the table of cublasGemmEx's manual */
static int judged(int ta, int tb, int m, int n, int k, const void *a, int at, int lda, const void *b, int bt, int ldb, void *c, int ct,
                  int ldc, int compute) {
  if (m < 0 || n < 0 || k < 0 || lda < most(1, ta ? k : m) || ldb < most(1, tb ? n : k) || ldc < most(1, m)) return 7;
  if (m && n && (!c || (k && (!a || !b)))) return 7;
  if (at != bt || at != ct) return 15;
  switch (compute) {
    case 68: case 69: return at == 0 || at == 2 || at == 14 || at == 4 ? 0 : 15;
    case 77: return at == 0 || at == 4 ? 0 : 15;
    case 70: case 71: return at == 1 || at == 5 ? 0 : 15;
  }
  return 15;
}
int cublasCreate_v2(void **handle) { *handle = (void *)16; return 0; }
static int destroyed = 0;
int cublasDestroyed() { return destroyed; } /* how many handles so far; none of cuBLAS's own */
int cublasDestroy_v2(void *handle) { destroyed++; return 0; }
int cublasSetWorkspace_v2(void *handle, void *memory, unsigned long long size) {
  return !memory || (unsigned long long)memory % 256 || size < 16 << 10 ? 7 : 0;
}
int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int at, int lda, const void *b, int bt,
                 int ldb, const void *y, void *c, int ct, int ldc, int compute, int algorithm) {
  return judged(ta, tb, m, n, k, a, at, lda, b, bt, ldb, c, ct, ldc, compute);
}
int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int at, int lda, i64 as,
                               const void *b, int bt, int ldb, i64 bs, const void *y, void *c, int ct, int ldc, i64 cs, int batch,
                               int compute, int algorithm) {
  if (batch < 0) return 7;
  return judged(ta, tb, m, n, k, a, at, lda, b, bt, ldb, c, ct, ldc, compute);
}
"""


def compiler() -> str | None:
    """A C compiler, and what lists a library's symbols."""
    return shutil.which("cc") if shutil.which("nm") else None


def load(folder: Path) -> ctypes.CDLL:
    """Build the library into ``folder`` and load it, so that CuPy's wrapper finds it; the library. RuntimeError without a compiler."""
    cc = compiler()
    if cc is None:
        raise RuntimeError("there is no C compiler")
    found = importlib.util.find_spec("cupy_backends.cuda.libs.cublas")
    assert found is not None and found.origin is not None
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", found.origin], capture_output=True, text=True, check=True
    ).stdout
    wanted = re.findall(r"(cublas\w+)@{1,2}(libcublas\.so\.\d+)", listed)
    (version,) = {library for _, library in wanted}
    written = set(re.findall(r"int (cublas\w+)\(", _JUDGED))
    plain = "\n".join(f"int {name}() {{ return 0; }}" for name, _ in sorted(set(wanted)) if name not in written)
    source, script, library = folder / "cublas.c", folder / "cublas.map", folder / version
    source.write_text(_JUDGED + plain)
    script.write_text(f"{version} {{ global: cublas*; local: *; }};")
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{version}", f"-Wl,--version-script={script}"]
    subprocess.run([cc, *flags, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    importlib.import_module("cupy_backends.cuda.libs.cublas")  # through the package, NVIDIA's would be looked for
    return loaded
