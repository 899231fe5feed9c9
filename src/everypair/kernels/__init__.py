"""Compiled leaves: arrays in, arrays changed, no decisions.

Every kernel works on a range ``[start, stop)`` of rows (or features) that no other range touches, is serial, and
releases the interpreter lock: :class:`everypair.runtime.parallel.Workers` runs ranges on threads, in any order, with the same
bits.
"""
