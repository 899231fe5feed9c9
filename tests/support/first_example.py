"""Print the first Python example of the README, as it stands."""

from __future__ import annotations

import re
from pathlib import Path


def examples() -> list[str]:
    readme = Path(__file__).parents[2] / "README.md"
    return re.findall(r"```python\n(.*?)```", readme.read_text(), flags=re.DOTALL)


if __name__ == "__main__":
    print(examples()[0])
