"""What every room uses: fields of settings, names, host arrays, random words, whole files."""
