"""``doctor``: what this machine can run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what this machine can run: sandbox, cores, data folder, sets, accounts, versions.

    Exit code 1 if `transitbench grade` would not work here.

    Example: [bold]transitbench doctor[/]
    """
    from transitbench.doctor import examine_machine

    findings = examine_machine()
    ready = all(finding.level != "fail" for finding in findings)
    if as_json:
        records = [{"level": f.level, "rule": f.rule, "text": f.text} for f in findings]
        print(json.dumps({"ready": ready, "findings": records}))
    else:
        console = Console(highlight=False)
        style = {"pass": "green", "note": "yellow", "fail": "bold red"}
        for finding in findings:
            console.print(f"[{style[finding.level]}]{finding.level}[/]  {finding.rule}: ", end="")
            console.print(finding.text, markup=False, soft_wrap=True)
        console.print("[green]ready to grade[/]" if ready else "[bold red]not ready to grade[/]")
    raise typer.Exit(0 if ready else 1)
