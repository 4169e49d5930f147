"""Taskset ``transitbench-mini``; its code is in :mod:`transitbench_env.mini`."""

from transitbench_env.mini import MiniTaskset

__all__ = ["MiniTaskset"]
