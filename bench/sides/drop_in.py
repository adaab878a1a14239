"""The program of the official SDK, on `bridle.compat`."""

from __future__ import annotations

import bridle.compat
from bench.jobs import main

if __name__ == "__main__":
    bridle.compat.install()
    from bench.sides.official import Driver

    main(Driver)
