"""How a fit is run, watched, kept and chosen."""
