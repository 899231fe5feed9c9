"""Shared by all benchmarks: stored results, processes that are measured, and sections of the report."""
