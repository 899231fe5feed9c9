"""The command line: thin shells over the package. Standard output is data, standard error is progress and notes."""

import sys

INTERRUPTED = 130  # the exit code of Ctrl-C


def main() -> None:
    """The command. Nothing is imported before: Ctrl-C ends it quietly from the start."""
    try:
        from everypair.cli.shell import main

        main(prog_name="everypair")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
