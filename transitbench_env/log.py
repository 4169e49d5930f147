"""The logger of the verifiers side."""

import logging

# Below the framework's own, because that is all that its command lines show and write to a run's log.
logger = logging.getLogger("verifiers.v1.transitbench")
