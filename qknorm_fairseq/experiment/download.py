"""One file from the addresses that offer it: whole and right, or not there at all.

An address can die, answer with a web page or break off half-way. So nothing takes the file's
name before its sha256 is right; what is there of it already waits in ``NAME.part``.
"""

import math
import os
import re
import time
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from qknorm_fairseq.experiment.console import Progress, say
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.workspace import sha256

AGENT = "qknorm_fairseq"
TIMEOUT = 30.0  # seconds in which something must come
RETRIES = 5  # of one address, in a row, that bring nothing
PAUSE = 1.0  # seconds before a retry, doubled with each that brings nothing
CHUNK = 1 << 16
MB = 1_000_000

# what may go wrong with a connection; writing to disk can fail with an OSError too, so these
# are caught around calls that do nothing but talk to the network
NETWORK = (OSError, HTTPException)


class _Unfit(Exception):
    """An address does not give the file: why."""


class _Broken(Exception):
    """A connection ended too early: how."""


@dataclass(frozen=True)
class RemoteFile:
    """A file, what it must be, and the addresses that offer it, the best first."""

    name: str
    bytes: int
    sha256: str
    urls: list[str]


def download(file: RemoteFile, path: Path) -> None:
    """Fetch ``file`` to ``path``, going on where an earlier call stopped.

    One process at a time may do so.

    Raises:
        UserError: when no address gives it.
        OSError: when it cannot be written.
    """
    part = path.with_name(f"{file.name}.part")
    failed = []
    for url in file.urls:
        try:
            _get(file, url, part)
        except _Unfit as error:
            failed.append(f"{url}: {error}")
            say(failed[-1])
        else:
            os.replace(part, path)
            return
    raise UserError(
        f"{file.name} ({file.bytes:,} bytes, sha256 {file.sha256}) cannot be fetched: "
        f"{'; '.join(failed)}; put it into {path.parent}, or name its folder with --raw-dir"
    )


def _get(file: RemoteFile, url: str, part: Path) -> None:
    """Complete ``part`` from one address, and check it."""
    resumed = _size(part) > 0
    _receive(file, url, part)
    found = sha256(part)
    if found == file.sha256:
        return
    part.unlink()
    if not resumed:
        raise _Unfit(f"gives {file.name} with sha256 {found}, not {file.sha256}")
    # what was there before may be what is wrong
    say(f"{part}: its sha256 is {found}, not {file.sha256}; fetching it anew")
    _get(file, url, part)


def _receive(file: RemoteFile, url: str, part: Path) -> None:
    """Read until all bytes are there; connections may break as long as more bytes come."""
    furthest, idle, reached = _size(part), 0, False
    while (have := _size(part)) < file.bytes:
        try:
            with _open(url, have) as response:
                reached = True
                _store(file, response, have, part)
        except _Broken as error:
            idle = 0 if _size(part) > furthest else idle + 1
            furthest = max(furthest, _size(part))
            if not reached or idle == RETRIES:
                raise _Unfit(str(error)) from error
            say(f"{url}: {error}; going on from {_size(part):,} of {file.bytes:,} bytes")
            time.sleep(PAUSE * 2**idle)


def _open(url: str, start: int) -> HTTPResponse:
    request = Request(url, headers={"User-Agent": AGENT})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT)
        return response
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:  # it has nothing from there on: ask for all of it
            return _open(url, 0)
        raise _Unfit(f"answers with HTTP status {error.code}") from error
    except NETWORK as error:
        raise _Broken(_reason(error)) from error


def _store(file: RemoteFile, response: HTTPResponse, have: int, part: Path) -> None:
    """Write an answer to ``part``, of which ``have`` bytes are there."""
    start = _start(file, response, have)
    began = time.monotonic()
    total = math.ceil(file.bytes / MB)
    with part.open("ab" if start else "wb") as out, Progress(file.name, total, "MB") as progress:
        # one byte more than wanted shows that it is another file
        while data := _read(response, min(CHUNK, file.bytes + 1 - out.tell())):
            _write(out, data, part)
            speed = (out.tell() - start) / MB / max(time.monotonic() - began, 0.001)
            progress.update(out.tell() // MB, f"{speed:.1f} MB/s")
    if _size(part) > file.bytes:
        part.unlink()
        raise _Unfit(f"gives more than the {file.bytes:,} bytes of {file.name}")
    if _size(part) < file.bytes:
        raise _Broken("the connection ended")


def _write(out: IO[bytes], data: bytes, part: Path) -> None:
    try:
        out.write(data)
        out.flush()
    except OSError as error:  # a full disk is not said with a name
        raise OSError(error.errno, error.strerror, str(part)) from error


def _start(file: RemoteFile, response: HTTPResponse, have: int) -> int:
    """Where in the file an answer starts: at ``have``, or 0 where ranges are not known.

    Raises:
        _Unfit: when what it announces is not the file.
    """
    start, total = 0, response.headers.get("Content-Length", "")
    if response.status == 206:
        told = response.headers.get("Content-Range", "")
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", told)
        if not span or int(span[1]) not in (0, have):
            raise _Unfit(f"answers with the range {told!r} when asked for bytes from {have:,}")
        start, total = int(span[1]), span[2]
    kind = response.headers.get_content_type()
    sized = total.isdecimal()  # else it does not say
    if kind == "text/html" or (sized and int(total) != file.bytes):
        what = f"{int(total):,} bytes of {kind}" if sized else kind
        raise _Unfit(f"answers with {what}, not the {file.bytes:,} of {file.name}")
    return start


def _read(response: HTTPResponse, most: int) -> bytes:
    try:
        return response.read(most)
    except NETWORK as error:
        raise _Broken(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """What went wrong with a connection, in one line."""
    cause = getattr(error, "reason", error)  # urllib wraps it
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(text.split())


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
