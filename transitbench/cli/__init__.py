"""The ``transitbench`` command.

Exit codes: 0 done, 1 done and the answer is no (a check failed, a set does not verify), 2 not done (bad
usage or a TB-E… error). With ``--json`` a command prints one JSON object, errors included.
"""

from __future__ import annotations

import json
import sys

from rich.console import Console

from transitbench.cli.app import app
from transitbench.errors import TransitBenchError


def main() -> None:
    """Run the command line; typed errors become a message, or a JSON object with ``--json``."""
    try:
        app()
    except TransitBenchError as error:
        if "--json" in sys.argv:
            record = {"code": error.code, "title": error.title, "what": error.what}
            print(json.dumps({"error": {**record, "hint": error.hint}}))
        else:
            console = Console(stderr=True, highlight=False)
            console.print(f"[bold red]{error.code}[/] {error.title}", soft_wrap=True)
            console.print(error.what, markup=False, soft_wrap=True)
            console.print(f"→ {error.hint}", markup=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        sys.exit(2)


__all__ = ["app", "main"]
