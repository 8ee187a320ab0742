"""Four routes from an objective to factors, with one interface: see `base.Solver`."""
