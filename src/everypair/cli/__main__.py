"""``python -m everypair.cli``, where the command is not on the path."""

from everypair.cli import main

if __name__ == "__main__":
    main()
