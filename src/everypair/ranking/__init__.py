"""Exact top-n ranking of items for many rows."""
