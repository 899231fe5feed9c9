"""``python -m everypair.cli``: the command line where the ``everypair`` script is not on the path."""

from everypair.cli import main

if __name__ == "__main__":
    main()
