"""Typed errors: every failure a user can meet has a stable ``TB-E…`` code and a way out.

The table below is the interface; ``docs/errors.md`` explains each entry. Codes are never reused.
This module imports only the standard library: it travels into boxes that hold nothing else.
"""

from __future__ import annotations

ERROR_TITLES: dict[str, str] = {
    "TB-E001": "private set not in TRANSITBENCH_DATA",
    "TB-E002": "public light curves not built yet",
    "TB-E003": "submission missing or without solution.py",
    "TB-E004": "no sandbox on this machine",
    "TB-E005": "digest mismatch",
    "TB-E006": "download failed",
    "TB-E007": "grading box lost",
    "TB-E008": "unknown set or task",
    "TB-E009": "evaluator secret missing",
    "TB-E010": "bad light-curve file",
    "TB-E011": "TRANSITBENCH_DATA not writable",
    "TB-E012": "incompatible resume",
    "TB-E013": "submission not acceptable",
    "TB-E014": "bad candidate rows",
    "TB-E015": "bad truth file",
    "TB-E016": "bad argument",
    "TB-E017": "star cannot carry the planet",
}


class TransitBenchError(Exception):
    """A failure with a code, what happened, and what to do next.

    Parameters
    ----------
    code
        One of :data:`ERROR_TITLES`.
    what
        What was expected and what was got, with the value that caused it. Never hidden truth.
    hint
        The next step: a command, a flag or a file to look at.

    Raises
    ------
    KeyError
        If ``code`` is not in the table.
    """

    def __init__(self, code: str, what: str, hint: str) -> None:
        self.code = code
        self.title = ERROR_TITLES[code]
        self.what = what
        self.hint = hint
        super().__init__(f"{code} {self.title}: {what} → {hint}")

    def __reduce__(self) -> tuple[type[TransitBenchError], tuple[str, str, str]]:
        """Pickle by the three arguments, so the error survives a worker process."""
        return (type(self), (self.code, self.what, self.hint))
