"""Kernels: frozen descriptions that write their own LLVM IR. One family per file; equal descriptions are one kernel."""
