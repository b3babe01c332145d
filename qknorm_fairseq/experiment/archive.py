"""Packed files, tar archives and lines read as a stream: none is held whole or written out."""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path, PurePosixPath
from typing import IO

from qknorm_fairseq.experiment.corpus import decode
from qknorm_fairseq.experiment.errors import UserError

MAX_BYTES = 16 * 2**30  # unpacked, in all; far more than any corpus for a small language
MAX_LINE = 16 * 2**20
MAX_MEMBERS = 10_000  # tarfile remembers every one
HEADER_ROOM = 2**20  # for what is no member's content: headers and padding

BROKEN = (EOFError, OSError, tarfile.TarError, zlib.error, lzma.LZMAError)
MALICIOUS = (ValueError, RecursionError)  # what tarfile makes of headers that no tool writes

OPENERS: dict[bytes, Callable[[IO[bytes]], io.BufferedIOBase]] = {
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"\x5d\0\0\x80": lzma.LZMAFile,  # the form before .xz
}


class Unpacked(io.RawIOBase):
    """The unpacked bytes of a file, as many as are allowed: one more is an error."""

    def __init__(self, file: io.BufferedIOBase, allowed: int) -> None:
        self.file = file
        self.allowed = allowed

    def readable(self) -> bool:
        return True

    # the base takes any writable buffer; tarfile and BufferedReader, who call it, give this one
    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.file.read(len(buffer))
        self.allowed -= len(data)
        if self.allowed < 0:
            raise tarfile.ReadError("it unpacks to more bytes than it should")
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def unpacked(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[Unpacked]:
    """A file to read, unpacked if its content (not its name) is gzip, bzip2 or xz.

    Raises:
        UserError: when what is read in the block is broken, truncated, an HTML page, or more
            than ``max_bytes``.
    """
    try:
        with path.open("rb") as file:
            head = file.read(1024)
            file.seek(0)
            if _is_html(head):
                raise UserError(
                    f"{path}: cannot be read (it is an HTML page, as dead addresses serve it); "
                    "fetch it again, from another address"
                )
            magic = next(filter(head.startswith, OPENERS), None)
            with OPENERS[magic](file) if magic else file as content:
                yield Unpacked(content, max_bytes)
    except (*BROKEN, *MALICIOUS) as error:
        raise UserError(f"{path}: cannot be read ({error}); fetch it again") from error


def _is_html(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return text.startswith(b"<") and (b"<html" in text or b"<!doctype html" in text)


def members(
    path: Path, stream: Unpacked, wanted: set[str], max_bytes: int = MAX_BYTES
) -> Iterator[tuple[str, IO[bytes]]]:
    """The members of a tar whose file name is ``wanted``, in any folder: name and content.

    To be read in order, each before the next, within the block of ``unpacked``. The archive is
    read to its end, so that its checksum is checked.

    Raises:
        UserError: for an archive that only malice or mishap makes: a path that leads out of
            it, a wanted member that is a link or a device or there twice, a bomb.
    """
    seen: set[str] = set()
    total = 0
    stream.allowed = HEADER_ROOM
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for number, member in enumerate(tar, 1):
            total += max(member.size, 0)
            name = PurePosixPath(member.name).name
            fault = _fault(member, number)
            if total > max_bytes:
                fault = f"makes it unpack to more than {max_bytes:,} bytes"
            elif fault is None and name in wanted:
                fault = _fault_of_wanted(member, name in seen)
            if fault:
                raise UserError(f"{path}: member {member.name!r} {fault}; fetch it again")
            # The next header may not be longer: tarfile holds an extended one in memory.
            stream.allowed = max(member.size, 0) + HEADER_ROOM
            if name in wanted:
                seen.add(name)
                content = tar.extractfile(member)
                assert content is not None  # a regular file has content
                yield name, content
    while stream.read(2**16):  # what is wrong with a packed file shows at its end
        pass


def _fault(member: tarfile.TarInfo, number: int) -> str | None:
    """Why no archive may hold this member."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        return "has a path that leads out of the archive"
    return f"is one of more than {MAX_MEMBERS:,}" if number > MAX_MEMBERS else None


def _fault_of_wanted(member: tarfile.TarInfo, seen: bool) -> str | None:
    """Why this member cannot be read for its content."""
    if not member.isreg() or member.issparse():  # a sparse one unpacks to more than is read
        return "is not a regular file"
    return "is there twice" if seen else None


def holds(path: Path, wanted: set[str]) -> bool:
    """Whether a tar archive has a member whose file name is wanted; reads as far as the first.

    Raises:
        UserError: as ``unpacked`` and ``members``.
    """
    with unpacked(path) as stream:
        return any(True for _ in members(path, stream, wanted))


def lines(file: IO[bytes], label: str) -> Iterator[str]:
    """Lines without their end, which is a line feed or, as Windows has it, CR LF.

    Raises:
        UserError: for a byte that is not UTF-8 or NUL, or a line of over ``MAX_LINE`` bytes.
    """
    offset = 0
    for number in count(1):
        line = file.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise UserError(f"{label}, line {number}: over {MAX_LINE:,} bytes; fetch it again")
        text = decode(line, label, number, offset)
        offset += len(line)
        yield text.removesuffix("\n").removesuffix("\r")
