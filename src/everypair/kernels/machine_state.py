"""The state of rows in a factorization machine, and its update after a step.

For a factor dimension f and the bias dimension q, a row has half gradients, half curvatures, ``phi_f``, and the sums of the moves
of ``phi_f`` and ``phi_q``. Kernels that follow the rows take an array (8, rows); where rows are visited in any order, (rows, 8)
keeps the numbers of a row in one place.
"""

from __future__ import annotations

from everypair.kernels.jit import leaf

G_F, G_Q, H_FF, H_FQ, H_QQ, PHI, MOVE_F, MOVE_Q = range(8)


@leaf
def moved_gradients(g_f, g_q, h_ff, h_fq, h_qq, u, v):
    """Half gradients of a row after ``phi_f += u`` and ``phi_q += v``."""
    return g_f + (h_ff * u + h_fq * v), g_q + (h_fq * u + h_qq * v)


@leaf
def move_rows(start, stop, u, v, last, state):
    """``phi_f(c) += u`` and ``phi_q(c) += v`` for rows ``start:stop``; ``u[0]`` and ``v[0]`` belong to row ``start``.

    After the ``last`` step of a dimension only the sums of the moves are read, and nothing else is updated.
    """
    moved_f, moved_q = state[MOVE_F][start:stop], state[MOVE_Q][start:stop]
    for c in range(len(moved_f)):
        moved_f[c] += u[c]
        moved_q[c] += v[c]
    if last:
        return
    g_f, g_q, phi = state[G_F][start:stop], state[G_Q][start:stop], state[PHI][start:stop]
    h_ff, h_fq, h_qq = state[H_FF][start:stop], state[H_FQ][start:stop], state[H_QQ][start:stop]
    for c in range(len(phi)):
        g_f[c], g_q[c] = moved_gradients(g_f[c], g_q[c], h_ff[c], h_fq[c], h_qq[c], u[c], v[c])
        phi[c] += u[c]


@leaf
def move_all(start, stop, u, v, state):
    """``phi_f(c) += u[c]`` and ``phi_q(c) += v[c]``."""
    move_rows(start, stop, u[start:stop], v[start:stop], False, state)
