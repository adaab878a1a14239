"""What a fake CLI's executable runs: ``python -I -S _fake_cli_main.py SCRIPT ARGUMENT...``.

The rule of this file: start fast. A main program is compiled anew at every start, so it is a few
lines; the rest is imported, and thereby cached, from the package beside it. Neither ``bridle`` nor
anything outside the standard library is loaded: this directory poses as a package of its own.
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
