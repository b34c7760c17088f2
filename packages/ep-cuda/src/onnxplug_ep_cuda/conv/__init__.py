"""Convolutions by cuDNN, in regions whose tensors lie channels last."""
