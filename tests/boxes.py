"""Local boxes that do one thing more, for tests that name them by their import path.

In another process they are told what they need to know by the host's environment, which no box sees.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar

from sessions import RememberedBox

from transitbench_env.localbox import LocalBox

NOTES = "TRANSITBENCH_TEST_NOTES"
"""Variable that names a file or a folder of the host."""

_PACK = """
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ > /tmp/.processes 2>/dev/null
exec tar -cf - --one-file-system --ignore-failed-read -C / workspace opt tmp home logs var/tmp dev/shm 2>/dev/null
"""


class NotedBox(LocalBox):
    """Adds its name to the file that ``NOTES`` names when it is started."""

    async def start(self) -> None:
        with Path(os.environ[NOTES]).open("a", encoding="utf-8") as notes:
            notes.write(f"{self.name}\n")
        await super().start()


class PackedBox(LocalBox):
    """Leaves all that can be written in it, and its processes' arguments and variables, in a tar in ``NOTES``."""

    async def teardown(self) -> None:
        if self._control is not None:
            # The framework has said that this is the end; the box still takes commands.
            self.stopped = False
            process = await self.exec(self.bind(env={}), ["sh", "-c", _PACK], {})
            process.close_stdin()
            with Path(os.environ[NOTES], f"{self.name}.tar").open("wb") as archive:
                async for chunk in process.stdout:
                    archive.write(chunk)
            self.stopped = True
        await super().teardown()


class DyingBox(RememberedBox):
    """Is killed when the host comes back for more records: some of the stars are done, others at work."""

    lives: ClassVar[int] = 0
    """Boxes that are to die before one lives."""
    kept: ClassVar[list[int]] = []
    """Records that the host had when a box died."""

    async def exec(self, runtime, argv, env):
        follows = re.search(r"tail -c \+(\d+) \S+/live\.jsonl", argv[-1])
        if follows and int(follows[1]) > 1 and len(self.kept) < self.lives:
            (records,) = Path(os.environ["TRANSITBENCH_DATA"]).glob("runs/*/grade.jsonl")
            self.kept.append(len(records.read_text().splitlines()))
            self.destroy()
        return await super().exec(runtime, argv, env)


class LostBox(DyingBox):
    """No box lives until its stars are graded."""

    lives = 1000
