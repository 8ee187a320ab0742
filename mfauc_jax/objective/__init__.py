"""Eq. 3 and its parts: losses, weightings, weights, penalties, samples and the exact evaluation."""
