"""The command line, a thin layer over the package. Results go to standard output, progress and notes to standard error."""

import signal
import sys


def main() -> None:
    """Run the command. Its modules are imported inside, so that Ctrl-C during the imports ends it without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    try:
        from everypair.runtime.signals import interrupt, may_be_handled

        if may_be_handled(signal.SIGINT):
            signal.signal(signal.SIGINT, interrupt)
        from everypair.cli.shell import main

        main(prog_name="everypair")
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
