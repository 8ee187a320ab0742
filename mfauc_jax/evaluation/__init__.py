"""Evaluation of rankings: metrics, curves, lists, and the significance of differences."""
