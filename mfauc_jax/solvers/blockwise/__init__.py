"""The paper's parallel algorithm."""
