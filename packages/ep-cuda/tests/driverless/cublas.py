"""A library that has cuBLAS's names: it judges the arguments of products as cuBLAS does, and multiplies where it is told whom to hand the
work to."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

_JUDGED = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
typedef long long i64;
typedef struct { void *stream, *memory; i64 size; } Handle;
typedef struct {
  Handle handle; int ta, tb, m, n, k, type, out, lda, ldb, ldc, batch, compute; i64 as, bs, cs; double x[2], y[2];
  const void *a, *b; void *c;
} Job;
static void (*handed)(Job *) = 0;
static void (*missed)(const char *) = 0;
void cublasHand(void (*to)(Job *), void (*other)(const char *)) { handed = to; missed = other; }
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
static double half(unsigned short x) {
  int e = x >> 10 & 31, f = x & 1023;
  double y = e == 31 ? (f ? NAN : INFINITY) : e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
  return x & 0x8000 ? -y : y;
}
static unsigned short to_half(double x) {
  unsigned short sign = signbit(x) ? 0x8000 : 0; double size = fabs(x); int e;
  if (x != x) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14) return sign | (unsigned short)nearbyint(size * 0x1p24);
  frexp(size, &e);
  return sign | (unsigned short)(((e + 13) << 10) + (int)nearbyint(ldexp(size, 11 - e)));
}
static double brain(unsigned short x) { unsigned y = (unsigned)x << 16; float z; memcpy(&z, &y, 4); return z; }
static unsigned short to_brain(double x) {
  float z = x; unsigned y; memcpy(&y, &z, 4);
  return x != x ? 0x7fff : (unsigned short)((y + 0x7fff + (y >> 16 & 1)) >> 16);
}
static double tensor32(float x) { /* 10 bits of mantissa */
  unsigned y; memcpy(&y, &x, 4); y = (y + 0x1000) & ~0x1fffu; memcpy(&x, &y, 4); return x;
}
static double part(const void *p, i64 n, int type, int compute, int imaginary) {
  switch (type) {
    case 0: return imaginary ? 0 : compute == 77 ? tensor32(((float *)p)[n]) : ((float *)p)[n];
    case 1: return imaginary ? 0 : ((double *)p)[n];
    case 2: return imaginary ? 0 : half(((unsigned short *)p)[n]);
    case 14: return imaginary ? 0 : brain(((unsigned short *)p)[n]);
    case 4: return ((float *)p)[2 * n + imaginary];
    case 5: return ((double *)p)[2 * n + imaginary];
  }
  return NAN;
}
static void put(void *p, i64 n, int type, double x, double y) {
  switch (type) {
    case 0: ((float *)p)[n] = x; break;
    case 1: ((double *)p)[n] = x; break;
    case 2: ((unsigned short *)p)[n] = to_half(x); break;
    case 14: ((unsigned short *)p)[n] = to_brain(x); break;
    case 4: ((float *)p)[2 * n] = x; ((float *)p)[2 * n + 1] = y; break;
    case 5: ((double *)p)[2 * n] = x; ((double *)p)[2 * n + 1] = y; break;
  }
}
static i64 bytes(int type) { return type == 0 ? 4 : type == 1 || type == 4 ? 8 : type == 5 ? 16 : 2; }
void cublasWork(Job *j) { /* column by column, as cuBLAS has it */
  i64 size = bytes(j->type); int is_complex = j->type == 4 || j->type == 5;
  if (j->handle.memory) memset(j->handle.memory, 0xff, 1 << 14); /* whose it is */
  for (i64 p = 0; p < j->batch; p++) {
    const char *a = (const char *)j->a + p * j->as * size, *b = (const char *)j->b + p * j->bs * size;
    char *c = (char *)j->c + p * j->cs * size;
    for (i64 col = 0; col < j->n; col++) for (i64 row = 0; row < j->m; row++) {
      double re = 0, im = 0;
      for (i64 k = 0; k < j->k; k++) {
        i64 at = j->ta ? row * j->lda + k : k * j->lda + row, bt = j->tb ? k * j->ldb + col : col * j->ldb + k;
        double u = part(a, at, j->type, j->compute, 0), v = part(b, bt, j->type, j->compute, 0);
        if (!is_complex) { re += u * v; continue; }
        double s = part(a, at, j->type, 0, 1), t = part(b, bt, j->type, 0, 1);
        if (j->ta == 2) s = -s;
        if (j->tb == 2) t = -t;
        re += u * v - s * t; im += u * t + s * v;
      }
      i64 at = col * j->ldc + row; double x = j->x[0] * re - j->x[1] * im, y = j->x[0] * im + j->x[1] * re;
      if (j->y[0] || j->y[1]) {
        double u = part(c, at, j->type, 0, 0), v = part(c, at, j->type, 0, 1);
        x += j->y[0] * u - j->y[1] * v; y += j->y[0] * v + j->y[1] * u;
      }
      put(c, at, j->type, x, y);
    }
  }
}
int cublasJobSize() { return sizeof(Job); }
static void scale(double *to, const void *from, int type) {
  to[0] = type == 1 || type == 5 ? ((double *)from)[0] : ((float *)from)[0];
  to[1] = type == 4 ? ((float *)from)[1] : type == 5 ? ((double *)from)[1] : 0;
}
static int asked(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int type, int lda, i64 as, const void *b,
                 int ldb, i64 bs, const void *y, void *c, int ldc, i64 cs, int batch, int compute) {
  if (handed && m && n && batch) {
    Job made = {*(Handle *)h, ta, tb, m, n, k, type, type, lda, ldb, ldc, batch, compute, as, bs, cs};
    made.a = a, made.b = b, made.c = c;
    scale(made.x, x, type), scale(made.y, y, type);
    handed(&made);
  }
  return 0;
}
int cublasCreate_v2(void **handle) { *handle = calloc(1, sizeof(Handle)); return 0; }
static int destroyed = 0;
int cublasDestroyed() { return destroyed; } /* how many handles so far */
int cublasDestroy_v2(void *handle) { destroyed++; free(handle); return 0; }
int cublasSetStream_v2(void *handle, void *stream) { Handle made = {stream}; *(Handle *)handle = made; return 0; }
int cublasGetStream_v2(void *handle, void **stream) { *stream = ((Handle *)handle)->stream; return 0; }
int cublasSetWorkspace_v2(void *handle, void *memory, unsigned long long size) {
  if (!memory || (unsigned long long)memory % 256 || size < 16 << 10) return 7;
  ((Handle *)handle)->memory = memory, ((Handle *)handle)->size = size;
  return 0;
}
int cublasSetPointerMode_v2() { return 0; }
int cublasSetMathMode() { return 0; }
int cublasGetPointerMode_v2(void *h, int *mode) { *mode = 0; return 0; }
int cublasGetMathMode(void *h, int *mode) { *mode = 0; return 0; }
int cublasGetVersion_v2(void *h, int *version) { *version = 120900; return 0; }
int cublasGemmEx(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int at, int lda, const void *b, int bt,
                 int ldb, const void *y, void *c, int ct, int ldc, int compute, int algorithm) {
  int said = judged(ta, tb, m, n, k, a, at, lda, b, bt, ldb, c, ct, ldc, compute);
  return said ? said : asked(h, ta, tb, m, n, k, x, a, at, lda, 0, b, ldb, 0, y, c, ldc, 0, 1, compute);
}
int cublasGemmStridedBatchedEx(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int at, int lda, i64 as,
                               const void *b, int bt, int ldb, i64 bs, const void *y, void *c, int ct, int ldc, i64 cs, int batch,
                               int compute, int algorithm) {
  if (batch < 0) return 7;
  int said = judged(ta, tb, m, n, k, a, at, lda, b, bt, ldb, c, ct, ldc, compute);
  return said ? said : asked(h, ta, tb, m, n, k, x, a, at, lda, as, b, ldb, bs, y, c, ldc, cs, batch, compute);
}
#define PLAIN(name, type, compute) \
  int name(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int lda, const void *b, int ldb, const void *y, \
           void *c, int ldc) { return asked(h, ta, tb, m, n, k, x, a, type, lda, 0, b, ldb, 0, y, c, ldc, 0, 1, compute); }
PLAIN(cublasSgemm_v2, 0, 68) PLAIN(cublasDgemm_v2, 1, 70) PLAIN(cublasCgemm_v2, 4, 68) PLAIN(cublasZgemm_v2, 5, 70)
int cublasSgemmEx(void *h, int ta, int tb, int m, int n, int k, const void *x, const void *a, int at, int lda, const void *b, int bt,
                  int ldb, const void *y, void *c, int ct, int ldc) {
  return at != bt || at != ct ? 15 : asked(h, ta, tb, m, n, k, x, a, at, lda, 0, b, ldb, 0, y, c, ldc, 0, 1, 68);
}
"""


def hand(library: ctypes.CDLL, to: Callable[[int, Callable[[], None]], None], missed: Callable[[str], None]) -> None:
    """Have ``to(stream, work)`` see to what is asked for from now on; ``missed(name)`` is told of functions that compute nothing here."""
    size = library.cublasJobSize()
    library.cublasWork.argtypes = [ctypes.c_void_p]

    def given(job: int) -> None:  # whose struct begins with the handle's stream
        held = ctypes.create_string_buffer(ctypes.string_at(job, size), size)
        to(ctypes.c_size_t.from_buffer(held).value, lambda: library.cublasWork(held))

    handed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(given)
    other = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lambda name: missed(name.decode()))
    library.handed_to = handed, other  # type: ignore[attr-defined]
    library.cublasHand(handed, other)


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
    written = set(re.findall(r"(?:int |PLAIN\()(cublas\w+)[(,]", _JUDGED))
    missed = 'if (missed) missed("{0}");'
    plain = "\n".join(
        f"int {name}() {{ {missed.format(name)} return 0; }}" for name, _ in sorted(set(wanted)) if name not in written
    )
    source, script, library = folder / "cublas.c", folder / "cublas.map", folder / version
    source.write_text(_JUDGED + plain)
    script.write_text(f"{version} {{ global: cublas*; local: *; }};")
    flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{version}", f"-Wl,--version-script={script}"]
    subprocess.run([cc, "-O2", *flags, str(source), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    importlib.import_module("cupy_backends.cuda.libs.cublas")  # through the package, NVIDIA's would be looked for
    return loaded
