"""Strict JSON, which has no nan and no infinities."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """`value` with None in place of every number that is not finite; tuples become lists."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
