"""A directory that all members share: the leader leaves a small, signed file there."""

from __future__ import annotations

import os
import stat

from mingle_hooks.errors import PlaceError, reason
from mingle_hooks.rendezvous import wire
from mingle_hooks.rendezvous.connection import Timer
from mingle_hooks.rendezvous.dialer import Endpoint
from mingle_hooks.rendezvous.discovery import Advertisement, Context

FIRST_DELAY_S = 0.05
GROWTH = 1.5
# Shared file systems show a new name to others within about a second; asking faster only loads the server.
LONGEST_DELAY_S = 1.0
MOST_FILE_BYTES = 2048
# Candidates of one election that are looked at; the best of them is soon the only one.
MOST_FILES = 64
SUFFIX = ".mingle"
MARK_DIGITS = 16  # of a file name, in hex: 64 bits that nobody guesses while a world forms


def backend(context: Context) -> DirectoryBackend | None:
    """Return this backend where a directory is set; PlaceError where it cannot be used."""
    if context.directory is None:
        return None
    if not os.access(context.directory, os.R_OK | os.W_OK | os.X_OK) or not os.path.isdir(context.directory):
        raise PlaceError(
            "a shared directory that this user can write to",
            context.directory,
            "mkdir -p, chmod u+rwx, or another --directory",
        )
    return DirectoryBackend(context, context.directory)


class DirectoryBackend:
    """Polls for leaders' files, and keeps this leader's own while it is announced."""

    def __init__(self, context: Context, directory: str) -> None:
        self._context, self._directory = context, directory
        self._prefix = context.attempt.tag.hex() + "-"
        self._has_told = False
        self.faults: list[str] = []
        self._own: str | None = None
        self._delay = FIRST_DELAY_S
        self._timer: Timer | None = None

    def search(self, *, wanted: bool) -> None:
        """Begin, or stop, looking into the directory."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wanted:
            self._delay = FIRST_DELAY_S
            self._poll()

    def announce(self, advertisement: Advertisement | None) -> None:
        """Write this leader's file, whole or not at all, or remove it. Raises PlaceError."""
        if advertisement is None:
            self._remove()
            return
        body = wire.encode(
            {
                "leader": advertisement.leader.hex(),
                "ticket": advertisement.ticket,
                "addresses": list(advertisement.addresses),
                "ports": list(advertisement.ports),
            }
        )
        path = os.path.join(self._directory, self._name(advertisement.leader.hex()))
        draft = path + ".part"
        self._own = path
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._context.secret.mac(b"notice", body) + body)
            os.replace(draft, path)
        except OSError as error:
            self._remove()
            seen = f"{draft}: {error.strerror}"
            raise PlaceError("to write a file in the shared directory", seen, "another --directory") from error

    def tried(self) -> str:
        """Name the directory."""
        return self._directory

    def close(self) -> None:
        """Stop, and remove this leader's file."""
        self.search(wanted=False)
        self._remove()

    def _remove(self) -> None:
        own, self._own = self._own, None
        if own is None:
            return
        for path in (own, own + ".part"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._context.note(f"cannot remove {path}: {error.strerror}")

    def _poll(self) -> None:
        for path in self._files():
            self._read(path)
        self._timer = self._context.loop.after(self._delay, self._poll)
        self._delay = min(self._delay * GROWTH, LONGEST_DELAY_S)

    def _name(self, leader: str) -> str:
        """Return a leader's file name, which only holders of the key can make: others cannot crowd ours out."""
        mark = self._context.secret.mac(b"file", os.fsencode(leader)).hex()[:MARK_DIGITS]
        return f"{self._prefix}{leader}-{mark}{SUFFIX}"

    def _files(self) -> list[str]:
        try:
            names = [name for name in os.listdir(self._directory) if name.startswith(self._prefix)]
        except OSError as error:  # the file server is away for a moment; the deadline bounds it
            self._context.loop.missed(error)
            self.faults = [reason(error)]
            return []
        self.faults = []
        found: list[str] = []
        for name in sorted(names):
            leader = name[len(self._prefix) :].partition("-")[0]
            if name.endswith(SUFFIX) and name != self._name(leader):
                self._stranger()
            elif name.endswith(SUFFIX) and len(found) < MOST_FILES:
                found.append(os.path.join(self._directory, name))
        return [path for path in found if path != self._own]

    def _stranger(self) -> None:
        """Report once that there is a file of this world that was made with another key."""
        if not self._has_told:
            self._has_told = True
            self._context.reject("a file in the shared directory")

    def _read(self, path: str) -> None:
        try:
            # Not to follow a link, nor to wait at a FIFO that somebody has put there.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:  # it has gone, or is not for us
            self._context.loop.missed(error)
            return
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = os.read(descriptor, MOST_FILE_BYTES) if is_file else b""
        except OSError:  # the file server, as above
            return
        finally:
            os.close(descriptor)
        mac, body = data[: wire.MAC_BYTES], data[wire.MAC_BYTES :]
        if not self._context.secret.agrees(mac, b"notice", body):
            return
        try:
            parsed = wire.decode(body)
            addresses = [wire.address({"a": a}, "a") for a in parsed["addresses"][:8]]
            ports = [wire.integer({"p": p}, "p", 1, 65535) for p in parsed["ports"][:4]]
        except (wire.WireError, KeyError, TypeError):
            return
        for address in addresses:
            for port in ports:
                self._context.dial(Endpoint(address, port, "directory"))
