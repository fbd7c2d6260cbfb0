"""Lines of numbers that may differ by rounding."""

import numpy as np


def show_close(label, value):
    """Prints numbers, of any nesting; the comparison allows for rounding."""
    numbers = " ".join(f"{number:.8g}" for number in _flat(value))
    print(f"~{label}: {numbers}", flush=True)


def _flat(value):
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    else:
        yield from np.asarray(value).ravel().tolist()
