"""The native driver: runs a program's operations one after the other, each shared out among the threads of the pool.

A *record* (made once per bound region, one for each stretch of a long one) says what an image looks like: words, word count,
relocations, relocation count; and which operations to run: first, how many. ``launch`` of the first stretch copies the words
into the image (the head of the run's workspace), adds to each relocated word the address of its base (base 0 is the image
itself), and runs. Bases are NumPy arrays, given as the addresses of the Python objects: asking each for its data's address
from Python would cost more than a small region's work. An image starts with: operations, address of the rows, address of the
counters, status. A row is function, arguments, items, grab; a counter line has the next item at 0, the items done at 8 and
whether somebody sleeps until all are at 16 bytes. The lower half of ``grab`` is how many items a thread takes at once at
least, the upper half a divisor: it takes that part of the items left if that is more, so that grabs are few at first and
threads end together (Polychronopoulos and Kuck, "Guided Self-Scheduling", 1987). A divisor of 0 says that sharing the operation
would cost more than it brings: then the lower half is how many operations from this one on are such, and the thread that comes
first does all of them, on the counters of the first.
"""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.entry import DATA, ENTRY
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.waits import waits

# Words of the context that threads share; each on a cache line of its own. ACTIVE: minus the helpers in a run; GONE: whether
# the caller sleeps until none is.
SEQUENCE, IMAGE, ACTIVE, STOP, GONE = 0, 8, 16, 24, 32
CONTEXT_WORDS = 40

HEAD_WORDS, ROW_WORDS, COUNTER_WORDS = 4, 4, 8
STATUS = 3
"""Word of an image that a kernel sets when data make its work impossible."""


def driver_text(target: Target) -> str:
    """LLVM IR of ``launch(context or null, record, bases)``, ``serve(context, last, spins) -> last or -1`` and ``entry``."""
    pause, waiting = waits(target)
    texts = (waiting, _ALONE, _SHARE, _LAUNCH, _SERVE, ENTRY)
    return "\n".join(texts).replace("PAUSE", pause).replace("STATUS", str(STATUS))


_ALONE = """
define internal void @whole(ptr %rows, i64 %i) alwaysinline {
  %at = shl i64 %i, 2
  %row = getelementptr i64, ptr %rows, i64 %at
  %fn = load ptr, ptr %row
  %ap = getelementptr i64, ptr %row, i64 1
  %args = load ptr, ptr %ap
  %ip = getelementptr i64, ptr %row, i64 2
  %items = load i64, ptr %ip
  call void %fn(ptr %args, i64 0, i64 %items)
  ret void
}
define internal void @alone(ptr %image) {
entry:
  %n = load i64, ptr %image
  %rp = getelementptr i64, ptr %image, i64 1
  %rows = load ptr, ptr %rp
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  call void @whole(ptr %rows, i64 %i)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""

_SHARE = """
define internal void @share(ptr %image) {
entry:
  %n = load i64, ptr %image
  %rp = getelementptr i64, ptr %image, i64 1
  %rows = load ptr, ptr %rp
  %cp = getelementptr i64, ptr %image, i64 2
  %counters = load ptr, ptr %cp
  br label %head
head:
  %i = phi i64 [0, %entry], [%i1, %next]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %op, label %finish
op:
  %at = shl i64 %i, 2
  %row = getelementptr i64, ptr %rows, i64 %at
  %fn = load ptr, ptr %row
  %ap = getelementptr i64, ptr %row, i64 1
  %args = load ptr, ptr %ap
  %ip = getelementptr i64, ptr %row, i64 2
  %items = load i64, ptr %ip
  %gp = getelementptr i64, ptr %row, i64 3
  %grabs = load i64, ptr %gp
  %least = and i64 %grabs, 4294967295
  %divisor = lshr i64 %grabs, 32
  %ca = shl i64 %i, 3
  %taken = getelementptr i64, ptr %counters, i64 %ca
  %ended = getelementptr i64, ptr %taken, i64 1
  %bell = getelementptr i64, ptr %taken, i64 2
  %solo = icmp eq i64 %divisor, 0
  br i1 %solo, label %train, label %look
train:
  %rest = sub i64 %n, %i
  %beyond = icmp slt i64 %rest, %least
  %length = select i1 %beyond, i64 %rest, i64 %least
  %behind = add i64 %i, %length
  %claimed = load atomic i64, ptr %taken monotonic, align 8
  %free = icmp eq i64 %claimed, 0
  br i1 %free, label %claim, label %stay
claim:
  %before = atomicrmw add ptr %taken, i64 1 acq_rel
  %own = icmp eq i64 %before, 0
  br i1 %own, label %ride, label %stay
ride:
  %k = phi i64 [%i, %claim], [%k1, %ride]
  call void @whole(ptr %rows, i64 %k)
  %k1 = add i64 %k, 1
  %arrived = icmp sge i64 %k1, %behind
  br i1 %arrived, label %leave, label %ride
leave:
  %before_all = atomicrmw add ptr %ended, i64 1 seq_cst
  call void @ring(ptr %ended, ptr %bell)
  br label %next
stay:
  call void @until(ptr %ended, i64 1, ptr %bell)
  br label %next
look:
  %seen = load atomic i64, ptr %taken monotonic, align 8
  %none = icmp sge i64 %seen, %items
  br i1 %none, label %wait, label %take
take:
  %left = sub i64 %items, %seen
  %part = udiv i64 %left, %divisor
  %small = icmp slt i64 %part, %least
  %grab = select i1 %small, i64 %least, i64 %part
  %lo = atomicrmw add ptr %taken, i64 %grab acq_rel
  %late = icmp sge i64 %lo, %items
  br i1 %late, label %wait, label %call
call:
  %end = add i64 %lo, %grab
  %cut = icmp slt i64 %end, %items
  %hi = select i1 %cut, i64 %end, i64 %items
  call void %fn(ptr %args, i64 %lo, i64 %hi)
  %did = sub i64 %hi, %lo
  %old = atomicrmw add ptr %ended, i64 %did seq_cst
  %done = add i64 %old, %did
  %last = icmp sge i64 %done, %items
  br i1 %last, label %ring, label %look
ring:
  call void @ring(ptr %ended, ptr %bell)
  br label %next
wait:
  call void @until(ptr %ended, i64 %items, ptr %bell)
  br label %next
next:
  %done_here = phi i64 [%length, %leave], [%length, %stay], [1, %ring], [1, %wait]
  %i1 = add i64 %i, %done_here
  br label %head
finish:
  ret void
}
"""

_LAUNCH = f"""
define void @launch(ptr %context, ptr %record, ptr %bases) {{
entry:
  %words = load ptr, ptr %record
  %np = getelementptr i64, ptr %record, i64 1
  %n = load i64, ptr %np
  %mp = getelementptr i64, ptr %record, i64 2
  %moves = load ptr, ptr %mp
  %kp = getelementptr i64, ptr %record, i64 3
  %k = load i64, ptr %kp
  %own = load ptr, ptr %bases
  %where = getelementptr i8, ptr %own, i64 {DATA}
  %image = load ptr, ptr %where
  %fp = getelementptr i64, ptr %record, i64 4
  %first = load i64, ptr %fp
  %begins = icmp eq i64 %first, 0
  br i1 %begins, label %copy, label %ready
copy:
  %bytes = shl i64 %n, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %image, ptr %words, i64 %bytes, i1 false)
  br label %head
head:
  %i = phi i64 [0, %copy], [%i1, %body]
  %more = icmp slt i64 %i, %k
  br i1 %more, label %body, label %ready
body:
  %at = shl i64 %i, 1
  %move = getelementptr i64, ptr %moves, i64 %at
  %word = load i64, ptr %move
  %bp = getelementptr i64, ptr %move, i64 1
  %b = load i64, ptr %bp
  %base = getelementptr i64, ptr %bases, i64 %b
  %array = load ptr, ptr %base
  %data = getelementptr i8, ptr %array, i64 {DATA}
  %add = load i64, ptr %data
  %slot = getelementptr i64, ptr %image, i64 %word
  %old = load i64, ptr %slot
  %new = add i64 %old, %add
  store i64 %new, ptr %slot
  %i1 = add i64 %i, 1
  br label %head
ready:
  %op = getelementptr i64, ptr %record, i64 5
  %ops = load i64, ptr %op
  store i64 %ops, ptr %image
  %rowsp = getelementptr i64, ptr %image, i64 1
  %headed = getelementptr i64, ptr %image, i64 {HEAD_WORDS}
  %ahead = shl i64 %first, 2
  %rows = getelementptr i64, ptr %headed, i64 %ahead
  store ptr %rows, ptr %rowsp
  %single = icmp eq ptr %context, null
  br i1 %single, label %by_one, label %by_all
by_one:
  call void @alone(ptr %image)
  ret void
by_all:
  %cp = getelementptr i64, ptr %image, i64 2
  %counters = load ptr, ptr %cp
  %size = shl i64 %ops, 6
  call void @llvm.memset.p0.i64(ptr %counters, i8 0, i64 %size, i1 false)
  %shown = getelementptr i64, ptr %context, i64 {IMAGE}
  %active = getelementptr i64, ptr %context, i64 {ACTIVE}
  store atomic ptr %image, ptr %shown seq_cst, align 8
  %sequence = atomicrmw add ptr %context, i64 1 seq_cst
  call void @share(ptr %image)
  store atomic ptr null, ptr %shown seq_cst, align 8
  %gone = getelementptr i64, ptr %context, i64 {GONE}
  call void @until(ptr %active, i64 0, ptr %gone)
  store atomic i64 0, ptr %gone seq_cst, align 8
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""

_SERVE = f"""
define i64 @serve(ptr %context, i64 %last, i64 %spins) {{
entry:
  %stop = getelementptr i64, ptr %context, i64 {STOP}
  %shown = getelementptr i64, ptr %context, i64 {IMAGE}
  %active = getelementptr i64, ptr %context, i64 {ACTIVE}
  %gone = getelementptr i64, ptr %context, i64 {GONE}
  br label %outer
outer:
  %known = phi i64 [%last, %entry], [%now, %left], [%now, %empty]
  br label %spin
spin:
  %n = phi i64 [0, %outer], [%n1, %idle]
  %now = load atomic i64, ptr %context seq_cst, align 8
  %fresh = icmp ne i64 %now, %known
  br i1 %fresh, label %work, label %idle
idle:
  PAUSE
  %n1 = add i64 %n, 1
  %tired = icmp sge i64 %n1, %spins
  br i1 %tired, label %sleep, label %spin
sleep:
  ret i64 %known
work:
  %stopped = load atomic i64, ptr %stop seq_cst, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %quit, label %enter
quit:
  ret i64 -1
enter:
  %in = atomicrmw sub ptr %active, i64 1 seq_cst
  %image = load atomic ptr, ptr %shown seq_cst, align 8
  %some = icmp ne ptr %image, null
  br i1 %some, label %help, label %left
help:
  call void @share(ptr %image)
  br label %left
left:
  %out = atomicrmw add ptr %active, i64 1 seq_cst
  %none = icmp eq i64 %out, -1
  br i1 %none, label %empty, label %outer
empty:
  call void @ring(ptr %active, ptr %gone)
  br label %outer
}}
"""
