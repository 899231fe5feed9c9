"""The command line: thin shells over the package. Standard output is data, standard error is progress and notes."""

from everypair.cli.shell import main

__all__ = ["main"]
