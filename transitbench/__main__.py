"""``python -m transitbench``: the same as the ``transitbench`` command."""

from transitbench.cli import main

main()
