"""Bounds on the true AUC."""
