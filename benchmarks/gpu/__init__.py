"""Training and ranking on a GPU: absolute times on one card, with a solver by conjugate gradients and the CPU beside it."""
