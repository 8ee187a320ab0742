"""What a ranking is worth."""
