"""Sign test: of the clusters that differ, as many go up as down (Conover 1999, section 3.4); exact."""

from __future__ import annotations

import numpy as np


def sign_test(signs: np.ndarray, side: str) -> float:
    """p-value. `signs` [K]: above 0 where the subject is higher, below 0 where it is lower; clusters at 0 are left out.

    `side`: `greater`, `less` or `two_sided` (twice the smaller one-sided p, at most 1).
    """
    from scipy.special import bdtr

    up, down = int((signs > 0).sum()), int((signs < 0).sum())
    if up + down == 0:
        return 1.0
    greater, less = (float(bdtr(fewer, up + down, 0.5)) for fewer in (down, up))
    return {"greater": greater, "less": less, "two_sided": min(1.0, 2 * min(greater, less))}[side]
