"""The loss of the paper and its solver: feedback, objective, views, sweeps, and the base class of towers."""
