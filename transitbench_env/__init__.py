"""TransitBench as verifiers environments: tasksets, boxes, grading. Scores are ``transitbench``'s business."""
