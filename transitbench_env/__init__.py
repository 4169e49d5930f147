"""The agentic side of TransitBench: tasksets, boxes and grading on the ``verifiers`` framework."""
