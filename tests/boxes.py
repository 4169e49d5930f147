"""Local boxes that do one thing more, for tests that name them by their import path in another process.

What they need to know comes in the host's environment, which no box sees.
"""

from __future__ import annotations

import os
from pathlib import Path

from transitbench_env.localbox import LocalBox

NOTES = "TRANSITBENCH_TEST_NOTES"


class NotedBox(LocalBox):
    """Adds its name to the file that ``NOTES`` names when it is started."""

    async def start(self) -> None:
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
            notes.write(f"{self.name}\n")
        await super().start()
