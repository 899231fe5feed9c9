"""Benchmarks of EveryPair: quality beside published results, speed beside other libraries, and the experiments of docs/log.md.

Not installed with the library. Run from the root of the repository: ``python -m benchmarks --help``.
"""
