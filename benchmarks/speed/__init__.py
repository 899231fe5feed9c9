"""How fast it is, beside other libraries: ``everypair benchmark speed``.

A section is a file with ``units`` (what to measure, each with the arguments that tell it from others) and ``part`` (its part of the
report, made from stored results alone). Everything timed runs in processes of its own (``experiments/benchmark/process.py``).
"""
