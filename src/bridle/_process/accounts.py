"""The system user that a CLI runs as: its ids, its groups, its variables, and the files for it."""

from __future__ import annotations

import os

import msgspec

from bridle.errors import OptionsError

_DIRECTORY_MODE = 0o710
"""The other user may open files by name, but not list, add or remove them."""


class Account(msgspec.Struct, frozen=True):
    """A system user. ``group`` is its primary group, ``groups`` are all of its groups."""

    name: str
    user: int
    group: int
    groups: tuple[int, ...]
    home: str

    def variables(self) -> dict[str, str]:
        """Return the variables that name the user and its home directory."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def share(self, directory: str) -> None:
        """Let the user read the private files in this directory.

        The directory stays ours, so the user cannot replace its files while we remove them.
        """
        os.chown(directory, -1, self.group)
        os.chmod(directory, _DIRECTORY_MODE)
        for place, directories, files in os.walk(directory):
            for name in directories + files:
                os.chown(os.path.join(place, name), self.user, self.group)


def account_of(name: str | None) -> Account | None:
    """Return the user with this name; None for None, and for the user of this process.

    Raises:
        OptionsError: there is no such user.
    """
    if name is None:
        return None
    from pwd import getpwnam  # loaded only if a user is named

    try:
        entry = getpwnam(name)
    except KeyError:
        fix = "Name a user that exists on this machine."
        raise OptionsError("user", f"is {name!r}, which is not a system user", fix=fix) from None
    if entry.pw_uid == os.geteuid():
        return None
    groups = os.getgrouplist(name, entry.pw_gid)
    return Account(name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir)
