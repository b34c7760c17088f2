"""Many launches of a program, each on the next of its operands: a loop's trips without Python in between.

A *table* (made once per loop, see ``table``) says of each operand, the workspace first, where it is among the objects that a call is
given: the numbers of those that hold it in the first trip, in odd ones and in even ones, and whether trips have rows of it.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import TripOperand
from onnxplug_ep_cpu.codegen.driver import STATUS
from onnxplug_ep_cpu.codegen.entry import (
    DATA,
    DIMENSIONS,
    DTYPE,
    FLAGS,
    ITEM_SIZE,
    RANK,
    RECORD_WORDS,
    STRIDES,
    Maker,
    address_of,
)
from onnxplug_ep_cpu.codegen.loader import Code

LEADING = 3
"""Objects before the arrays: the workspace, how many trips, whether to go on."""
PLACE_WORDS = 5
"""Of an operand while trips are run: its address in this trip, in odd ones, in even ones, bytes from row to row or 0; and its base."""


def table(operands: Sequence[TripOperand]) -> np.ndarray:
    """The workspace and these."""
    found = [[LEADING + o.first, LEADING + o.odd, LEADING + o.even, int(o.rows)] for o in operands]
    return np.array([[0, 0, 0, 0], *found], np.int64)


TRIPS = f"""
define internal ptr @place_of(ptr %line, i64 %which, ptr %objects) {{
  %numberp = getelementptr i64, ptr %line, i64 %which
  %number = load i64, ptr %numberp
  %objectp = getelementptr ptr, ptr %objects, i64 %number
  %object = load ptr, ptr %objectp
  ret ptr %object
}}
define internal i64 @data_of(ptr %line, i64 %which, ptr %objects) {{
  %object = call ptr @place_of(ptr %line, i64 %which, ptr %objects)
  %datap = getelementptr i8, ptr %object, i64 {DATA}
  %data = load i64, ptr %datap
  ret i64 %data
}}
define internal i1 @has_gaps(ptr %object, i64 %first) {{
entry:
  %rankp = getelementptr i8, ptr %object, i64 {RANK}
  %rank32 = load i32, ptr %rankp
  %rank = sext i32 %rank32 to i64
  %flagsp = getelementptr i8, ptr %object, i64 {FLAGS}
  %flags = load i32, ptr %flagsp
  %bit = and i32 %flags, 1
  %gapless = icmp ne i32 %bit, 0
  br i1 %gapless, label %no, label %measure
measure:
  %dtypep = getelementptr i8, ptr %object, i64 {DTYPE}
  %dtype = load ptr, ptr %dtypep
  %widthp = getelementptr i8, ptr %dtype, i64 {ITEM_SIZE}
  %width = load i64, ptr %widthp
  %dimsp = getelementptr i8, ptr %object, i64 {DIMENSIONS}
  %dims = load ptr, ptr %dimsp
  %stridesp = getelementptr i8, ptr %object, i64 {STRIDES}
  %strides = load ptr, ptr %stridesp
  br label %head
head:
  %d = phi i64 [%rank, %measure], [%axis, %next]
  %due = phi i64 [%width, %measure], [%due1, %next]
  %more = icmp sgt i64 %d, %first
  br i1 %more, label %look, label %no
look:
  %axis = sub i64 %d, 1
  %dimp = getelementptr i64, ptr %dims, i64 %axis
  %dim = load i64, ptr %dimp
  %stridep = getelementptr i64, ptr %strides, i64 %axis
  %stride = load i64, ptr %stridep
  %right = icmp eq i64 %stride, %due
  %single = icmp sle i64 %dim, 1
  %fits = or i1 %right, %single
  br i1 %fits, label %next, label %yes
next:
  %due1 = mul i64 %due, %dim
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}}
define i64 @trips(ptr %launch, ptr %context, ptr %record, ptr %table, i64 %n, ptr %objects, ptr %places,
                  i64 %count, ptr %going, i64 %checked) {{
entry:
  %width = shl i64 %n, 5
  %bases = getelementptr i8, ptr %places, i64 %width
  %always = icmp eq ptr %going, null
  %trusted = icmp eq i64 %checked, 0
  br i1 %always, label %begin, label %find
find:
  %heldp = getelementptr i8, ptr %going, i64 {DATA}
  %held = load ptr, ptr %heldp
  br label %begin
begin:
  %flag = phi ptr [null, %entry], [%held, %find]
  br label %operands
operands:
  %k = phi i64 [0, %begin], [%k1, %stored]
  %some = icmp slt i64 %k, %n
  br i1 %some, label %operand, label %head
operand:
  %kat = shl i64 %k, 2
  %line = getelementptr i64, ptr %table, i64 %kat
  %place = getelementptr i64, ptr %places, i64 %kat
  %data = call i64 @data_of(ptr %line, i64 0, ptr %objects)
  %odd = call i64 @data_of(ptr %line, i64 1, ptr %objects)
  %even = call i64 @data_of(ptr %line, i64 2, ptr %objects)
  %oddp = getelementptr i64, ptr %place, i64 1
  %evenp = getelementptr i64, ptr %place, i64 2
  %stepp = getelementptr i64, ptr %place, i64 3
  store i64 %data, ptr %place
  store i64 %odd, ptr %oddp
  store i64 %even, ptr %evenp
  %seen = getelementptr i8, ptr %place, i64 {-DATA}
  %base = getelementptr ptr, ptr %bases, i64 %k
  store ptr %seen, ptr %base
  %rowsp = getelementptr i64, ptr %line, i64 3
  %rows = load i64, ptr %rowsp
  %whole = icmp eq i64 %rows, 0
  %array = call ptr @place_of(ptr %line, i64 0, ptr %objects)
  %gaps = call i1 @has_gaps(ptr %array, i64 %rows)
  br i1 %gaps, label %refuse, label %dense
dense:
  br i1 %whole, label %stored, label %rowed
rowed:
  %stridesp = getelementptr i8, ptr %array, i64 {STRIDES}
  %strides = load ptr, ptr %stridesp
  %stride = load i64, ptr %strides
  br label %stored
stored:
  %step = phi i64 [0, %dense], [%stride, %rowed]
  store i64 %step, ptr %stepp
  %k1 = add i64 %k, 1
  br label %operands
head:
  %t = phi i64 [0, %operands], [%t1, %on]
  %more = icmp slt i64 %t, %count
  br i1 %more, label %which, label %done
which:
  %bit = and i64 %t, 1
  %is_odd = icmp ne i64 %bit, 0
  %is_first = icmp eq i64 %t, 0
  br i1 %is_first, label %ready, label %move
move:
  %m = phi i64 [0, %which], [%m1, %moved]
  %left = icmp slt i64 %m, %n
  br i1 %left, label %moved, label %ready
moved:
  %mat = shl i64 %m, 2
  %there = getelementptr i64, ptr %places, i64 %mat
  %here = load i64, ptr %there
  %thereodd = getelementptr i64, ptr %there, i64 1
  %atodd = load i64, ptr %thereodd
  %thereeven = getelementptr i64, ptr %there, i64 2
  %ateven = load i64, ptr %thereeven
  %therestep = getelementptr i64, ptr %there, i64 3
  %by = load i64, ptr %therestep
  %turn = select i1 %is_odd, i64 %atodd, i64 %ateven
  %next = add i64 %here, %by
  %turns = icmp eq i64 %by, 0
  %now = select i1 %turns, i64 %turn, i64 %next
  store i64 %now, ptr %there
  %m1 = add i64 %m, 1
  br label %move
ready:
  call void %launch(ptr %context, ptr %record, ptr %bases)
  br i1 %trusted, label %ran, label %check
check:
  %image = load ptr, ptr %places
  %statusp = getelementptr i64, ptr %image, i64 {STATUS}
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
refuse:
  ret i64 0
}}
define ptr @trip_entry(ptr %self, ptr %args, i64 %n) {{
entry:
  %wordsp = getelementptr i8, ptr %self, i64 {DATA}
  %record = load ptr, ptr %wordsp
  %own = getelementptr i64, ptr %record, i64 {RECORD_WORDS}
  %least = load i64, ptr %own
  %operandsp = getelementptr i64, ptr %own, i64 1
  %operands = load i64, ptr %operandsp
  %savep = getelementptr i64, ptr %own, i64 2
  %save = load ptr, ptr %savep
  %restorep = getelementptr i64, ptr %own, i64 3
  %restore = load ptr, ptr %restorep
  %numberp = getelementptr i64, ptr %own, i64 4
  %number = load ptr, ptr %numberp
  %integerp = getelementptr i64, ptr %own, i64 5
  %integer = load ptr, ptr %integerp
  %nonep = getelementptr i64, ptr %own, i64 6
  %none = load ptr, ptr %nonep
  %checkedp = getelementptr i64, ptr %own, i64 7
  %checked = load i64, ptr %checkedp
  %longp = getelementptr i64, ptr %own, i64 8
  %long = load i64, ptr %longp
  %launchp = getelementptr i64, ptr %own, i64 9
  %launch = load ptr, ptr %launchp
  %table = getelementptr i64, ptr %own, i64 10
  %enough = icmp sge i64 %n, %least
  br i1 %enough, label %take, label %answer
take:
  %countp = getelementptr ptr, ptr %args, i64 1
  %counted = load ptr, ptr %countp
  %count = call i64 %number(ptr %counted)
  %goingp = getelementptr ptr, ptr %args, i64 2
  %given = load ptr, ptr %goingp
  %always = icmp eq ptr %given, %none
  %going = select i1 %always, ptr null, ptr %given
  %size = mul i64 %operands, {PLACE_WORDS}
  %places = alloca i64, i64 %size, align 16
  %short = icmp slt i64 %count, %long
  br i1 %short, label %held, label %free
held:
  %ran0 = call i64 @trips(ptr %launch, ptr null, ptr %record, ptr %table, i64 %operands, ptr %args, ptr %places,
                          i64 %count, ptr %going, i64 %checked)
  br label %answer
free:
  %state = call ptr %save()
  %ran1 = call i64 @trips(ptr %launch, ptr null, ptr %record, ptr %table, i64 %operands, ptr %args, ptr %places,
                          i64 %count, ptr %going, i64 %checked)
  call void %restore(ptr %state)
  br label %answer
answer:
  %ran = phi i64 [0, %entry], [%ran0, %held], [%ran1, %free]
  %result = call ptr %integer(i64 %ran)
  ret ptr %result
}}
"""
"""``trips(launch, context or null, record, table, operands, objects, places, count, array or null, checked) -> count``: launches with the
operands of each trip, up to one that leaves the array's byte zero, or to before one that sets the status if that is ``checked``; none where
operands have gaps. ``places`` has room for ``PLACE_WORDS`` words an operand, the last of them bases: pointers at which ``launch`` finds
the address where a NumPy array has it. ``trip_entry`` is the same as a function of workspace, count, array or None, and arrays (see
``entry``)."""


class Trips(Maker):
    """Makes functions of the trips of programs. Given are the compiled ``TRIPS`` and the address of the driver's ``launch``."""

    def __init__(self, code: Code, launch: int) -> None:
        super().__init__("trips", code, "trip_entry")
        p, i = ctypes.c_void_p, ctypes.c_int64
        self._run = ctypes.CFUNCTYPE(i, p, p, p, p, i, p, p, i, p, i)(code.get_function_address("trips"))
        self._launch = launch

    def function(self, record: np.ndarray, table: np.ndarray, checked: bool, brief: int) -> Callable[..., int]:
        """Trips on the calling thread, as ``CompiledRegion.trips`` says. Other threads may use the interpreter from ``brief`` on."""
        api = ctypes.pythonapi
        used = api.PyEval_SaveThread, api.PyEval_RestoreThread, api.PyLong_AsLongLong, api.PyLong_FromLongLong
        own = (
            int(table[:, :3].max()) + 1, len(table), *map(address_of, used), id(None), int(checked), brief, self._launch,
            *table.ravel().tolist(),
        )  # fmt: skip
        made: Callable[..., int] = self.made(record, own)
        return made

    def run(
        self,
        context: int | None,
        record: int,
        table: np.ndarray,
        checked: bool,
        trips: int,
        going: Any,
        given: Sequence[Any],
    ) -> int:
        """Trips with the threads of a context, if any; ``given``: the workspace and the arrays."""
        workspace, *arrays = given
        objects, places = (
            array("q", [id(workspace), 0, 0, *map(id, arrays)]),
            array("q", [0]) * (PLACE_WORDS * len(table)),
        )
        there, room = objects.buffer_info()[0], places.buffer_info()[0]
        flag = 0 if going is None else id(going)
        ran: int = self._run(
            self._launch, context, record, table.ctypes.data, len(table), there, room, trips, flag, checked
        )
        return ran
