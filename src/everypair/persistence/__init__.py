"""Models and checkpoints on disk: folders that are replaced atomically, and fingerprints of training data."""
