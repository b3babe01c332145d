"""A web site of one machine, with all that addresses do wrong."""

import hashlib
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from qknorm_fairseq.experiment.corpora import Corpus
from qknorm_fairseq.experiment.download import RemoteFile

CONTENT = bytes(number % 251 for number in range(10_000))
OTHER = CONTENT[::-1]
PAGE = b"<html>" + b"moved " * 116 + b"end"
WANTED = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Address:
    """What an address gives, how it behaves, and what it was asked for."""

    content: bytes = CONTENT
    kind: str = "application/gzip"
    status: int | None = None  # in place of the content
    ranges: bool = True  # heeds Range
    tells_length: bool = True
    most: list[int] = field(default_factory=list)  # bytes until each answer breaks off
    stalls: bool = False  # does not close the connection when it breaks off
    chunked: bool = False
    garbage: bool = False  # does not speak HTTP
    shift: int = 0  # answers with a range that starts so much later
    asked: list[str | None] = field(default_factory=list)  # the Range of each request
    agents: list[str | None] = field(default_factory=list)
    before: Callable[[], object] = lambda: None  # runs before each answer


class Site(ThreadingHTTPServer):
    """Addresses /0, /1 … of one machine."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.addresses: list[Address] = []
        self.over = threading.Event()

    def corpus(self, *addresses: Address) -> Corpus:
        """A corpus of one file of CONTENT, which ``addresses`` are said to give."""
        self.addresses += addresses
        urls = [f"http://127.0.0.1:{self.server_port}/{i}" for i in range(len(addresses))]
        file = RemoteFile("text.gz", len(CONTENT), WANTED, urls)
        return Corpus("some", "text", "free", "ted", [file])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        site = cast(Site, self.server)
        address = site.addresses[int(self.path[1:])]
        address.asked.append(self.headers.get("Range"))
        address.agents.append(self.headers.get("User-Agent"))
        address.before()
        if address.garbage:
            self.wfile.write(b"220 ready\r\n")
            self.close_connection = True
            return
        body = self.head(address)
        if address.chunked:
            self.wfile.write(f"{len(body):x}\r\n".encode())
            body += b"\r\n0\r\n\r\n"
        most = address.most.pop(0) if address.most else len(body)
        self.wfile.write(body[:most])
        if address.stalls and most < len(body):
            site.over.wait()

    def head(self, address: Address) -> bytes:
        """Send what comes before the body; the body is to be sent."""
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) + address.shift if asked and address.ranges else 0
        total = len(address.content)
        body = b"" if address.status else address.content[start:]
        beyond = start > 0 and not body
        self.send_response(address.status or (416 if beyond else 206 if start else 200))
        self.send_header("Content-Type", address.kind)
        if address.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif address.tells_length:
            self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("Connection", "close")
        self.end_headers()
        return body

    def log_message(self, *_: object) -> None:
        pass
