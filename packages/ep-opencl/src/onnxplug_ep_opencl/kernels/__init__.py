"""What the provider's kernels launch: one file per family of operators."""
