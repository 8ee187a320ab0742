"""What a fitted model answers, and to whom."""
