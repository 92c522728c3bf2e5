"""Randomness as a function: every seed is a hash of what it is for.

No running generator survives between items, so resume, order, batch size and worker count cannot change a draw.
"""

from __future__ import annotations

import hashlib


def derive_seed(family_seed: int, *purpose: str | int) -> int:
    """A 63-bit seed for `purpose`, for instance `(family.seed, "rollout", "readout", "sum-003@low", 4)`.

    The arm is left out of a rollout's purpose on purpose: arms of one family share sampling seeds, because the
    study pairs them. Parts are length-prefixed, so ("ab", "c") and ("a", "bc") differ.
    """
    parts = [str(family_seed), *map(str, purpose)]
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
