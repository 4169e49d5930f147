"""The command tree: which commands there are and which module answers each."""

from __future__ import annotations

import typer

from transitbench.cli import data, doctor, grade

app = typer.Typer(
    name="transitbench",
    help="Grade planet-search pipelines on Kepler-like light curves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
app.command("grade")(grade.grade_command)
app.command("check")(grade.check_command)
app.command("score")(grade.score_command)
app.command("compare")(grade.compare_command)
app.command("doctor")(doctor.doctor_command)
app.add_typer(data.app, name="data")
