"""Simulated Kepler stars: made from a seed in milliseconds, endless, identical everywhere.

:func:`simulate_star` composes one star; each ingredient is a small function with documented parameters in
the modules below (``cadences``, ``population``, ``photometry``, ``stellar``, ``instrument``,
``binaries``, ``false_alarms``).
"""

from transitbench.sim.compose import SIM_GENERATOR_VERSION, SimulatedStar, simulate_star

__all__ = ["SIM_GENERATOR_VERSION", "SimulatedStar", "simulate_star"]
