"""Kernels that write into outputs they are given, one operator family to a file; see ``forms``."""
