"""What checks annotations in tests: beartype, with an int where a float is declared, as PEP 484 says."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
