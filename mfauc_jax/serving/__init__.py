"""Serving: recommendations, new users, and files of a fitted model."""
