"""The commands of ``python -m benchmarks``, one per file: options only, everything else is imported when a command runs."""
