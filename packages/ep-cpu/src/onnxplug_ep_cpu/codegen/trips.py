"""Many launches of a program, each on the next rows of its operands: a loop's trips without Python in between."""

from __future__ import annotations

from onnxplug_ep_cpu.codegen.entry import DATA, DIMENSIONS, STRIDES

_WORDS = 3
"""Of an operand of ``trips``: its address in this trip, the array's id, and which of its rows comes next. The workspace, which comes
first, has no rows."""

TRIPS = f"""
define i64 @trips(ptr %context, ptr %record, ptr %operands, i64 %n, i64 %count, ptr %going, i64 %checked) {{
entry:
  %bytes = mul i64 %n, {8 * _WORDS}
  %bases = getelementptr i8, ptr %operands, i64 %bytes
  %always = icmp eq ptr %going, null
  %trusted = icmp eq i64 %checked, 0
  br i1 %always, label %begin, label %find
find:
  %heldp = getelementptr i8, ptr %going, i64 {DATA}
  %held = load ptr, ptr %heldp
  br label %begin
begin:
  %flag = phi ptr [null, %entry], [%held, %find]
  br label %head
head:
  %t = phi i64 [0, %begin], [%t1, %on]
  %more = icmp slt i64 %t, %count
  br i1 %more, label %place, label %done
place:
  %k = phi i64 [0, %head], [%k1, %placed]
  %some = icmp slt i64 %k, %n
  br i1 %some, label %next, label %ready
next:
  %at = mul i64 %k, {8 * _WORDS}
  %operand = getelementptr i8, ptr %operands, i64 %at
  %idp = getelementptr i64, ptr %operand, i64 1
  %array = load ptr, ptr %idp
  %datap = getelementptr i8, ptr %array, i64 {DATA}
  %data = load i64, ptr %datap
  %stridesp = getelementptr i8, ptr %array, i64 {STRIDES}
  %strides = load ptr, ptr %stridesp
  %step = load i64, ptr %strides
  %dimsp = getelementptr i8, ptr %array, i64 {DIMENSIONS}
  %dims = load ptr, ptr %dimsp
  %rows = load i64, ptr %dims
  %rowp = getelementptr i64, ptr %operand, i64 2
  %row = load i64, ptr %rowp
  %offset = mul i64 %row, %step
  %address = add i64 %data, %offset
  store i64 %address, ptr %operand
  %row1 = add i64 %row, 1
  %last = icmp sge i64 %row1, %rows
  %row2 = select i1 %last, i64 0, i64 %row1
  store i64 %row2, ptr %rowp
  %seen = getelementptr i8, ptr %operand, i64 {-DATA}
  %base = getelementptr ptr, ptr %bases, i64 %k
  store ptr %seen, ptr %base
  br label %placed
placed:
  %k1 = add i64 %k, 1
  br label %place
ready:
  %ownp = getelementptr i64, ptr %operands, i64 2
  store i64 0, ptr %ownp
  call void @launch(ptr %context, ptr %record, ptr %bases)
  br i1 %trusted, label %ran, label %check
check:
  %image = load ptr, ptr %operands
  %statusp = getelementptr i64, ptr %image, i64 STATUS
  %status = load i64, ptr %statusp
  %fine = icmp eq i64 %status, 0
  br i1 %fine, label %ran, label %done
ran:
  %t1 = add i64 %t, 1
  br i1 %always, label %on, label %look
look:
  %byte = load i8, ptr %flag
  %goes = icmp ne i8 %byte, 0
  br i1 %goes, label %on, label %stop
on:
  br label %head
stop:
  ret i64 %t1
done:
  ret i64 %t
}}
"""
"""``trips(context or null, record, operands, how many, count, array or null, checked) -> count``: launches with the rows of each trip,
up to one that leaves the array's byte zero, or to before one that sets the status if that is ``checked``. Behind the operands, the
workspace first, is room for as many bases: pointers at which ``launch`` finds the address where a NumPy array has it."""
