"""Load and endurance of the HTTP service: ``python -m benchmarks serve``."""
