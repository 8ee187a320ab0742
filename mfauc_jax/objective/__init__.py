"""Eq. 3 and what it is made of."""
