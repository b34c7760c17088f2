"""hashlib's ``blake2b``, from the module it comes from: hashlib loads OpenSSL for the other hashes, which takes as long as a small
model's session, and its memory."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # another Python than CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
