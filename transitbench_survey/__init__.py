"""Taskset ``transitbench-survey``; its code is in :mod:`transitbench_env.survey`."""

from transitbench_env.survey import SurveyTaskset

__all__ = ["SurveyTaskset"]
