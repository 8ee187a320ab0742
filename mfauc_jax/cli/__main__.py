import sys

from mfauc_jax.cli import main

sys.exit(main())
