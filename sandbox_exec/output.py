"""The script's output: always drained, only its two ends kept."""

import os

_CHUNK = 1 << 18


class OutputTail:
    """Keeps the first and the last bytes of a stream of any length.

    Args:
        keep: bytes kept in all, half at each end.
    """

    def __init__(self, keep: int) -> None:
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._head_size = keep // 2
        self._tail_size = keep - self._head_size

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-self._tail_size :]
            if len(self._tail) > 2 * self._tail_size:
                del self._tail[: -self._tail_size]

    def drain(self, fd: int) -> bool:
        """Read what a non-blocking `fd` holds, one chunk; False at end of file."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.feed(data)
        return bool(data)

    @property
    def head(self) -> str:
        """First half as text; bytes that are not UTF-8 appear as escapes."""
        return _text(bytes(self._head))

    @property
    def tail(self) -> str:
        """Last half as text; empty while the head holds everything."""
        return _text(bytes(self._tail[-self._tail_size :]))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
