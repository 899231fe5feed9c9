"""The experiments of the paper (Section 6), and published results to compare with."""
