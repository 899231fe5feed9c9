"""Folders that are written whole or not at all: their checksums, fingerprints of data, checkpoints of fits."""
