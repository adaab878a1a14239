"""The main program of a fake CLI: ``python -I -S _fake_cli_main.py SCRIPT ARGUMENT...``.

It must start fast. Python compiles a main program at every start, so this file has only a few
lines and imports the rest, which Python caches. It loads only the standard library, not
``bridle``: this directory is imported as a package of its own.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    host = type(sys)("fake_cli_host")
    host.__path__ = [__file__.rpartition("/")[0]]
    sys.modules[host.__name__] = host
    __package__ = host.__name__

    from ._fake_cli.program import main

    main(sys.argv[1], sys.argv[2:])
