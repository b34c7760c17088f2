"""How threads of the native driver wait for each other: a while awake, then asleep until they are woken."""

from __future__ import annotations

import platform
import sys

from onnxplug_ep_cpu.codegen.target import Target

PATIENCE = 1000
"""Pauses that a thread waits for the others' part of an operation before it sleeps (about 20 us): where other programs want the
processors, the thread waited for may be in need of this one."""
SYSTEM_CALL = {"x86_64": 202, "aarch64": 98}
"""Number of Linux's system call futex(2) on processors; elsewhere threads do not sleep within a run."""


def waits(target: Target) -> tuple[str, str]:
    """The instruction that spares a waiting processor, and LLVM IR in which PAUSE stands for it: ``until(word, enough, bell)``, which
    returns when the word is at least that and sets the bell before it sleeps, ``ring(word, bell)``, which wakes who sleeps where the
    bell is set, and the ``sleep`` and ``wake`` of these."""
    if target.is_x86:
        declare, pause = "declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"
    elif target.name == "neon":
        declare, pause = "declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"
    else:
        declare, pause = "", "fence seq_cst"
    number = SYSTEM_CALL.get(platform.machine()) if sys.platform == "linux" else None
    sleep = _NO_FUTEX if number is None else _FUTEX.replace("NUMBER", str(number))
    return pause, "\n".join((declare, sleep, _UNTIL))


_UNTIL = f"""
define internal void @until(ptr %word, i64 %enough, ptr %bell) {{
entry:
  br label %look
look:
  %n = phi i64 [0, %entry], [%n1, %rest]
  %seen = load atomic i64, ptr %word acquire, align 8
  %there = icmp sge i64 %seen, %enough
  br i1 %there, label %done, label %rest
rest:
  PAUSE
  %n1 = add i64 %n, 1
  %tired = icmp sge i64 %n1, {PATIENCE}
  br i1 %tired, label %sleep, label %look
sleep:
  store atomic i64 1, ptr %bell seq_cst, align 8
  %now = load atomic i64, ptr %word seq_cst, align 8
  %came = icmp sge i64 %now, %enough
  br i1 %came, label %done, label %lie
lie:
  call void @sleep(ptr %word, i64 %now)
  br label %sleep
done:
  ret void
}}
define internal void @ring(ptr %word, ptr %bell) {{
entry:
  %waiting = load atomic i64, ptr %bell seq_cst, align 8
  %asked = icmp ne i64 %waiting, 0
  br i1 %asked, label %wake, label %done
wake:
  call void @wake(ptr %word)
  br label %done
done:
  ret void
}}
"""

_FUTEX = """
define internal void @sleep(ptr %word, i64 %seen) {
  %low = trunc i64 %seen to i32
  %woke = call i64 (i64, ...) @syscall(i64 NUMBER, ptr %word, i32 128, i32 %low, ptr null, ptr null, i32 0)
  ret void
}
define internal void @wake(ptr %word) {
  %woken = call i64 (i64, ...) @syscall(i64 NUMBER, ptr %word, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  ret void
}
declare i64 @syscall(i64, ...)
"""
"""FUTEX_WAIT_PRIVATE for as long as the word's lower half is as it was seen, and FUTEX_WAKE_PRIVATE of all."""

_NO_FUTEX = """
define internal void @sleep(ptr %word, i64 %seen) {
  PAUSE
  ret void
}
define internal void @wake(ptr %word) {
  ret void
}
"""
