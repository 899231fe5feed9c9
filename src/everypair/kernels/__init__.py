"""Compiled kernels: arrays in, arrays changed, no decisions. They take arrays, numbers, and named tuples of these.

Every kernel works on a range ``[start, stop)`` of rows (or features) that no other range touches, is serial, and
releases the interpreter lock: :class:`everypair.runtime.parallel.Workers` runs ranges on threads, in any order, with the same
bits.
"""
