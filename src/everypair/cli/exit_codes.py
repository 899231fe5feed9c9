"""Exit codes of the command line beside click's own (0 success, 1 error, 2 wrong usage)."""

INTERRUPTED = 130  # Ctrl-C: 128 plus the number of SIGINT
