"""The command line, a thin layer over the package. Results go to standard output, progress and notes to standard error."""

import sys

from everypair.cli.exit_codes import INTERRUPTED


def main() -> None:
    """Run the command. Its modules are imported inside, so that Ctrl-C during the imports ends it without a traceback."""
    try:
        from everypair.cli.shell import main

        main(prog_name="everypair")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
