/* What PTX's instructions do, in C: the translation of a kernel (ptx.py) is this text and its own.

Registers are unsigned integers of their width. Memory is the host's: addresses of the global space are real ones, those of the shared
and the local space offsets, to which generic addresses add a window. Every access is held against the blocks that are taken. */
#include <fenv.h>
#include <math.h>
#include <string.h>
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64;
typedef float f32; typedef double f64;
#define SHARED_WINDOW (1ULL << 60)
#define LOCAL_WINDOW (1ULL << 61)
#define WINDOW (1ULL << 32)
enum { DONE, READY, AT_BARRIER, AT_WARP };

typedef struct { u64 count; const u64 *starts, *sizes; } Blocks;
typedef struct { u32 bad, block, thread, write; u64 address, size; } Fault;
typedef struct { u32 pc, state, id, ctaid[3], tid[3], mask, kind, by, clamp, result, carry; u64 value; u8 *registers, *local; } Thread;
typedef struct {
  const u8 *params; const Blocks *blocks; Fault *fault; u8 *shared; u64 shared_size, local_size, low, high;
  u32 grid[3], block[3];
} Launch;
/* ``low`` to ``high``: the module's own variables. */

/* ---- memory */

static u8 nowhere[64];

static void *fault(Launch *l, Thread *t, u64 address, u64 size, u32 write) {
  if (!l->fault->bad) {
    Fault made = {1, t->ctaid[0] + l->grid[0] * (t->ctaid[1] + l->grid[1] * t->ctaid[2]), t->id, write, address, size};
    *l->fault = made;
  }
  return nowhere;
}
static void *global_at(Launch *l, Thread *t, u64 address, u64 size, u32 write) {
  static __thread u64 start, length;
  static __thread const u64 *of;
  if (address % size == 0) {
    if (of == l->blocks->starts && address - start < length && address - start + size <= length) return (void *)address;
    if (address - l->low < l->high - l->low && address + size <= l->high) return (void *)address;
    u64 lowest = 0, highest = l->blocks->count;
    while (lowest < highest) {
      u64 middle = (lowest + highest) / 2;
      if (l->blocks->starts[middle] <= address) lowest = middle + 1; else highest = middle;
    }
    if (lowest && address + size <= l->blocks->starts[lowest - 1] + l->blocks->sizes[lowest - 1]) {
      start = l->blocks->starts[lowest - 1], length = l->blocks->sizes[lowest - 1], of = l->blocks->starts;
      return (void *)address;
    }
  }
  return fault(l, t, address, size, write);
}
static void *shared_at(Launch *l, Thread *t, u64 offset, u64 size, u32 write) {
  if (offset % size || offset + size > l->shared_size) return fault(l, t, SHARED_WINDOW + offset, size, write);
  return l->shared + offset;
}
static void *local_at(Launch *l, Thread *t, u64 offset, u64 size, u32 write) {
  if (offset % size || offset + size > l->local_size) return fault(l, t, LOCAL_WINDOW + offset, size, write);
  return t->local + offset;
}
static void *generic_at(Launch *l, Thread *t, u64 address, u64 size, u32 write) {
  if (address - SHARED_WINDOW < WINDOW) return shared_at(l, t, address - SHARED_WINDOW, size, write);
  if (address - LOCAL_WINDOW < WINDOW) return local_at(l, t, address - LOCAL_WINDOW, size, write);
  return global_at(l, t, address, size, write);
}

/* ---- bits and numbers */

static inline f32 F(u32 x) { f32 y; memcpy(&y, &x, 4); return y; }
static inline f64 D(u64 x) { f64 y; memcpy(&y, &x, 8); return y; }
static inline u32 f_(f32 x) { u32 y; if (x != x) return 0x7fffffff; memcpy(&y, &x, 4); return y; }
static inline u64 d_(f64 x) { u64 y; if (x != x) return 0x7fffffffffffffffULL & 0xfff8000000000000ULL; memcpy(&y, &x, 8); return y; }
static inline f32 flushed(f32 x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static inline f32 of_half(u16 x) {
  u32 sign = (u32)(x & 0x8000) << 16, rest = x & 0x7fff;
  if (rest >= 0x7c00) return F(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  f32 made = (f32)(rest & 0x3ff), scale = rest >> 10 ? F(((rest >> 10) + 112) << 23) : 0;
  made = rest >> 10 ? (1 + made / 1024) * scale : made * 0x1p-24f;
  return sign ? -made : made;
}
static inline u16 to_half(f64 x) { /* to nearest, ties to even */
  u16 sign = signbit(x) ? 0x8000 : 0;
  f64 size = fabs(x);
  if (x != x) return 0x7fff;
  if (size >= 65520) return sign | 0x7c00;
  if (size < 0x1p-14) return sign | (u16)nearbyint(size * 0x1p24);
  int exponent; frexp(size, &exponent); /* size = m * 2^exponent, m in [1/2, 1) */
  u32 steps = (u32)nearbyint(ldexp(size, 11 - exponent)); /* 1024 to 2048 */
  return sign | (u16)(((exponent + 13) << 10) + steps);
}
static inline f32 of_brain(u16 x) { return F((u32)x << 16); }
static inline u16 to_brain(f64 x) { /* once rounded from float64: to odd in float32 first */
  if (x != x) return 0x7fff;
  f32 near = (f32)x;
  u32 bits; memcpy(&bits, &near, 4);
  if ((f64)near != x && !isinf(near)) { /* toward zero, last bit set */
    if (fabs((f64)near) > fabs(x)) bits--;
    bits |= 1;
  }
  return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- arithmetic */

#define MODE(name, mode) \
  static f32 name##_add(f32 a, f32 b) { fesetround(mode); volatile f32 x = a, y = b, z = x + y; fesetround(FE_TONEAREST); return z; } \
  static f32 name##_mul(f32 a, f32 b) { fesetround(mode); volatile f32 x = a, y = b, z = x * y; fesetround(FE_TONEAREST); return z; } \
  static f32 name##_div(f32 a, f32 b) { fesetround(mode); volatile f32 x = a, y = b, z = x / y; fesetround(FE_TONEAREST); return z; } \
  static f32 name##_fma(f32 a, f32 b, f32 c) { \
    fesetround(mode); volatile f32 x = a, y = b, w = c, z = fmaf(x, y, w); fesetround(FE_TONEAREST); return z; } \
  static f32 name##_narrow(f64 a) { fesetround(mode); volatile f64 x = a; volatile f32 z = (f32)x; fesetround(FE_TONEAREST); return z; } \
  static f64 name##_addd(f64 a, f64 b) { fesetround(mode); volatile f64 x = a, y = b, z = x + y; fesetround(FE_TONEAREST); return z; } \
  static f64 name##_muld(f64 a, f64 b) { fesetround(mode); volatile f64 x = a, y = b, z = x * y; fesetround(FE_TONEAREST); return z; } \
  static f64 name##_divd(f64 a, f64 b) { fesetround(mode); volatile f64 x = a, y = b, z = x / y; fesetround(FE_TONEAREST); return z; } \
  static f64 name##_fmad(f64 a, f64 b, f64 c) { \
    fesetround(mode); volatile f64 x = a, y = b, w = c, z = fma(x, y, w); fesetround(FE_TONEAREST); return z; }
MODE(rz, FE_TOWARDZERO) MODE(rm, FE_DOWNWARD) MODE(rp, FE_UPWARD)

static inline f32 least(f32 a, f32 b) { return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b; }
static inline f32 most(f32 a, f32 b) { return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b; }
static inline f32 least_nan(f32 a, f32 b) { return a != a || b != b ? NAN : least(a, b); }
static inline f32 most_nan(f32 a, f32 b) { return a != a || b != b ? NAN : most(a, b); }
static inline f64 leastd(f64 a, f64 b) { return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b; }
static inline f64 mostd(f64 a, f64 b) { return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b; }
static inline f32 saturated(f32 x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
static inline f64 saturatedd(f64 x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

static inline s64 to_signed(f64 x, int bits, int wide) { /* wide: float64 to or from, whose NaN is the least integer */
  if (x != x) return wide ? -1LL << (bits - 1) : 0;
  if (x >= ldexp(1, bits - 1)) return (s64)((1ULL << (bits - 1)) - 1);
  if (x < -ldexp(1, bits - 1)) return -1LL << (bits - 1);
  return (s64)x;
}
static inline u64 to_unsigned(f64 x, int bits, int wide) {
  if (x != x) return wide ? 1ULL << (bits - 1) : 0;
  if (x >= ldexp(1, bits)) return bits == 64 ? ~0ULL : (1ULL << bits) - 1;
  return x < 0 ? 0 : (u64)x;
}

#define DIVIDED(type, least_) \
  static inline type div_##type(type a, type b) { return !b ? (type)-1 : a == least_ && (s64)b == -1 && (type)-1 < 0 ? a : a / b; } \
  static inline type rem_##type(type a, type b) { return !b ? a : a == least_ && (s64)b == -1 && (type)-1 < 0 ? 0 : a % b; }
DIVIDED(s16, -32768) DIVIDED(u16, 0) DIVIDED(s32, (-2147483647 - 1)) DIVIDED(u32, 0) DIVIDED(s64, (-9223372036854775807LL - 1)) DIVIDED(u64, 0)

static inline u64 shifted_left(u64 x, u32 by, int bits) { return by >= bits ? 0 : x << by; }
static inline u64 shifted_right(u64 x, u32 by, int bits) { return by >= bits ? 0 : x >> by; }
static inline s64 shifted_signed(s64 x, u32 by, int bits) { return x >> (by >= bits ? bits - 1 : by); }
static inline u64 high_unsigned(u64 a, u64 b) { return (u64)((unsigned __int128)a * b >> 64); }
static inline u64 high_signed(s64 a, s64 b) { return (u64)((__int128)a * b >> 64); }
static inline u64 inserted(u64 a, u64 b, u32 at, u32 length, int bits) {
  at &= 0xff; length &= 0xff;
  if (at >= bits || !length) return b;
  u64 mask = (length >= 64 ? ~0ULL : (1ULL << length) - 1) << at;
  return (b & ~mask) | (a << at & mask);
}
static inline u64 extracted(u64 a, u32 at, u32 length, int bits, int is_signed) {
  at &= 0xff; length &= 0xff;
  u64 last = is_signed && length ? a >> (at + length - 1 < bits ? at + length - 1 : bits - 1) & 1 : 0;
  u64 got = at >= bits ? (last ? ~0ULL : 0) : a >> at;
  if (at < bits && is_signed && last && bits - at < length) got |= ~0ULL << (bits - at);
  if (length >= 64) return got;
  got &= (1ULL << length) - 1;
  return last ? got | ~0ULL << length : got;
}
static inline u32 permuted(u32 a, u32 b, u32 by) {
  u64 both = (u64)b << 32 | a; u32 made = 0;
  for (int n = 0; n < 4; n++) {
    u32 which = by >> 4 * n & 15; u8 byte = both >> 8 * (which & 7);
    made |= (u32)(which & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * n;
  }
  return made;
}
static inline u32 dotted(u32 a, u32 b, u32 c, int signed_a, int signed_b) {
  for (int n = 0; n < 32; n += 8) {
    s32 x = signed_a ? (s8)(a >> n) : (u8)(a >> n), y = signed_b ? (s8)(b >> n) : (u8)(b >> n);
    c += (u32)(x * y);
  }
  return c;
}
static inline u32 logic(u32 a, u32 b, u32 c, u32 table) {
  u32 made = 0;
  for (u32 n = 0; n < 8; n++) if (table >> n & 1) made |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
  return made;
}
static inline u32 reversed(u32 x) { u32 y = 0; for (int n = 0; n < 32; n++) y |= (x >> n & 1) << (31 - n); return y; }
static inline u32 funnel(u32 low, u32 high, u32 by, int left, int wrap) {
  by = wrap ? by & 31 : by > 32 ? 32 : by;
  u64 both = (u64)high << 32 | low;
  return left ? (u32)(both << by >> 32) : by == 32 ? high : (u32)(both >> by);
}

/* ---- threads of a block, which meet at barriers and in warps */

typedef int (*Body)(Launch *, Thread *);
enum {
  SYNC, SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX, VOTE_BALLOT, VOTE_ANY, VOTE_ALL, MATCH_ANY, REDUX_ADD, REDUX_MIN_S, REDUX_MAX_S,
  REDUX_MIN_U, REDUX_MAX_U, REDUX_AND, REDUX_OR, REDUX_XOR
};

static void shuffled(Launch *l, Thread *warp, u32 lane, u32 group) {
  Thread *t = warp + lane;
  u32 by = t->by & 31, clamp = t->clamp & 31, segment = t->clamp >> 8 & 31;
  s32 bound = (lane & segment) | (clamp & ~segment), from = 0;
  switch (t->kind) {
    case SHFL_UP: from = (s32)lane - (s32)by; break;
    case SHFL_DOWN: from = lane + by; break;
    case SHFL_BFLY: from = lane ^ by; break;
    case SHFL_IDX: from = (lane & segment) | (by & ~segment); break;
  }
  t->carry = t->kind == SHFL_UP ? from >= bound : from <= bound;
  if (!t->carry) from = lane;
  if (!(group >> from & 1)) { fault(l, t, (u64)from, 0, 2); from = lane; }
  t->result = (u32)warp[from].value;
}
static void joined(Thread *warp, u32 lane, u32 group) {
  Thread *t = warp + lane;
  u32 made = 0, first = 1;
  for (u32 other = 0; other < 32; other++) {
    if (!(t->mask & group & 1u << other)) continue;
    u32 x = (u32)warp[other].value;
    switch (t->kind) {
      case VOTE_BALLOT: made |= (x & 1) << other; break;
      case VOTE_ANY: made |= x & 1; break;
      case VOTE_ALL: made = (first | made) & x & 1; break;
      case MATCH_ANY: made |= (u32)(warp[other].value == t->value) << other; break;
      case REDUX_ADD: made += x; break;
      case REDUX_MIN_S: made = first || (s32)x < (s32)made ? x : made; break;
      case REDUX_MAX_S: made = first || (s32)x > (s32)made ? x : made; break;
      case REDUX_MIN_U: made = first || x < made ? x : made; break;
      case REDUX_MAX_U: made = first || x > made ? x : made; break;
      case REDUX_AND: made = first ? x : made & x; break;
      case REDUX_OR: made |= x; break;
      case REDUX_XOR: made ^= x; break;
    }
    first = 0;
  }
  t->result = made;
}

/* Until all threads of a warp are done or at the block's barrier. */
static int warp_runs(Launch *l, Thread *warp, u32 count, Body body, int backward) {
  for (;;) {
    u32 waiting = 0, living = 0, moved = 0;
    for (u32 n = 0; n < count; n++) {
      Thread *t = warp + (backward ? count - 1 - n : n);
      if (t->state == READY) t->state = body(l, t);
      if (l->fault->bad) return 1;
    }
    for (u32 n = 0; n < count; n++) {
      if (warp[n].state == AT_WARP) waiting |= 1u << n;
      if (warp[n].state != DONE) living |= 1u << n;
    }
    if (!waiting) return 0;
    for (u32 n = 0; n < count; n++) {
      if (!(waiting >> n & 1)) continue;
      u32 group = 0;
      for (u32 m = 0; m < count; m++) {
        if (waiting >> m & 1 && warp[m].pc == warp[n].pc && warp[m].mask == warp[n].mask) group |= 1u << m;
      }
      if (warp[n].mask & living & ~group) continue; /* some are elsewhere still */
      for (u32 m = 0; m < count; m++) {
        if (!(group >> m & 1)) continue;
        if (warp[m].kind >= SHFL_UP && warp[m].kind <= SHFL_IDX) shuffled(l, warp, m, group); else joined(warp, m, group);
      }
      for (u32 m = 0; m < count; m++) if (group >> m & 1) warp[m].state = READY, moved |= 1u << m;
      waiting &= ~group;
    }
    if (!moved) { fault(l, warp, waiting, 0, 3); return 1; }
  }
}

/* All blocks, one after the other. ``order`` 1: the last block, warp and thread comes first. */
static int run(Launch *l, Body body, Thread *threads, u8 *registers, u64 step, int order) {
  u32 count = l->block[0] * l->block[1] * l->block[2], warps = (count + 31) / 32;
  u64 blocks = (u64)l->grid[0] * l->grid[1] * l->grid[2];
  for (u64 number = 0; number < blocks; number++) {
    u64 b = order ? blocks - 1 - number : number;
    memset(l->shared, 0xff, l->shared_size);
    for (u32 n = 0; n < count; n++) {
      Thread made = {
        0, READY, n, {b % l->grid[0], b / l->grid[0] % l->grid[1], b / l->grid[0] / l->grid[1]},
        {n % l->block[0], n / l->block[0] % l->block[1], n / l->block[0] / l->block[1]},
      };
      made.registers = registers + n * (step + l->local_size);
      made.local = made.registers + step;
      memset(made.registers, 0xff, step + l->local_size);
      threads[n] = made;
    }
    for (u32 at_barrier = 1; at_barrier;) {
      for (u32 n = 0; n < warps; n++) {
        u32 w = order ? warps - 1 - n : n;
        if (warp_runs(l, threads + w * 32, w + 1 < warps ? 32 : count - w * 32, body, order)) return 1;
      }
      at_barrier = 0;
      for (u32 n = 0; n < count; n++) if (threads[n].state == AT_BARRIER) threads[n].state = READY, at_barrier++;
    }
  }
  return 0;
}

/* The same for kernels without barriers, whose registers are variables of the function. */
static int run_plain(Launch *l, Body body, u8 *local, int order) {
  u32 count = l->block[0] * l->block[1] * l->block[2];
  u64 blocks = (u64)l->grid[0] * l->grid[1] * l->grid[2];
  for (u64 number = 0; number < blocks; number++) {
    u64 b = order ? blocks - 1 - number : number;
    if (l->shared_size) memset(l->shared, 0xff, l->shared_size);
    Thread t = {0, READY, 0, {b % l->grid[0], b / l->grid[0] % l->grid[1], b / l->grid[0] / l->grid[1]}};
    t.local = local;
    for (u32 k = 0; k < count; k++) {
      t.id = order ? count - 1 - k : k;
      t.tid[0] = t.id % l->block[0]; t.tid[1] = t.id / l->block[0] % l->block[1]; t.tid[2] = t.id / l->block[0] / l->block[1];
      if (l->local_size) memset(local, 0xff, l->local_size);
      body(l, &t);
      if (l->fault->bad) return 1;
    }
  }
  return 0;
}
