"""The paper's experiments (Section 6) and their report, for ``everypair reproduce``."""
