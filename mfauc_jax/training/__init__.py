"""Training: the loop of a fit, what it records, its checkpoints, and the choice of hyper-parameters."""
