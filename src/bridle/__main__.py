"""``python -m bridle``: the command, where its script is not on the PATH."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from bridle.cli import main
    except KeyboardInterrupt:  # from there on, the command sees to it
        sys.exit(130)
    sys.exit(main())
