"""The loss of the paper and its solver: feedback, objective, views of it, sweeps, and what a tower is."""
