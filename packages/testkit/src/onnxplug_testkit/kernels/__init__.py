"""L2: every claimed cell of the kernel registry, executed and compared with an oracle."""
