"""Small tools that every folder uses: declared fields, registries, host arrays, random words, files."""
