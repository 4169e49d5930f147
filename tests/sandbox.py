"""Whether this machine can make sandboxes: the mark of every test that needs one."""

from __future__ import annotations

import pytest

from transitbench.cage import prepare_cage
from transitbench.errors import TransitBenchError

try:
    prepare_cage()
    NO_SANDBOX = ""
except TransitBenchError as error:
    NO_SANDBOX = str(error)

needs_sandbox = pytest.mark.skipif(bool(NO_SANDBOX), reason=NO_SANDBOX)
