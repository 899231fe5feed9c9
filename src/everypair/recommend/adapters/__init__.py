"""Adapters: how a recommender trains each kind of model, asks it for scores, folds events into it and stores it."""
