"""The best n items of each row of scores; ties go to the smaller item."""

from __future__ import annotations

import numpy as np

from everypair.kernels.jit import kernel


@kernel
def top_n(start, stop, scores, ids, best):
    """Fill ``ids`` and ``best`` (n per row, best first) by insertion; ``-inf`` scores are never taken."""
    n = ids.shape[1]
    for r in range(start, stop):
        taken = 0
        for i in range(scores.shape[1]):
            s = scores[r, i]
            if s == -np.inf or (taken == n and s <= best[r, n - 1]):
                continue
            at = min(taken, n - 1)
            while at > 0 and best[r, at - 1] < s:
                best[r, at] = best[r, at - 1]
                ids[r, at] = ids[r, at - 1]
                at -= 1
            best[r, at] = s
            ids[r, at] = i
            taken = min(taken + 1, n)
