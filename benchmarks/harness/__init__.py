"""What benchmarks share: results that are kept, processes that are measured, and the report."""
