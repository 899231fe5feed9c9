"""Speed and memory beside other libraries: ``python -m benchmarks speed``.

Each section is a module with ``plan`` (its measurements, with the arguments that distinguish them) and ``summarize`` (its section
of the report, from stored results only). Everything timed runs in separate processes (``benchmarks/harness/process.py``).
"""
