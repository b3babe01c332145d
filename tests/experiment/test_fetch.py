"""Corpora are fetched from the first address that really gives them, or not at all."""

import errno
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from web import CONTENT, OTHER, PAGE, WANTED, Address, Site

from qknorm_fairseq.experiment import console, download
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.fetch import fetch


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE", 0.0)
    server = Site()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".fetching")


def test_a_file_is_fetched_whole_and_then_not_again(site: Site, tmp_path: Path) -> None:
    address = Address()
    corpus = site.corpus(address)
    folder = tmp_path / "raw" / "some"
    for _ in range(2):
        assert fetch(corpus, folder) == folder
        assert names(folder) == ["text.gz"]
        assert (folder / "text.gz").read_bytes() == CONTENT
    assert address.asked == [None]
    assert address.agents == ["qknorm_fairseq"]


def test_a_folder_that_has_all_is_only_read(site: Site, tmp_path: Path) -> None:
    (tmp_path / "text.gz").write_bytes(CONTENT)
    fetch(site.corpus(), tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "text.gz"]


def test_of_a_file_begun_only_the_rest_is_asked_for(site: Site, tmp_path: Path) -> None:
    address = Address()
    (tmp_path / "text.gz.part").write_bytes(CONTENT[:4000])
    fetch(site.corpus(address), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == ["bytes=4000-"]
    assert names(tmp_path) == ["text.gz"]


def test_a_file_that_was_complete_when_stopped_is_not_asked_for(site: Site, tmp_path: Path) -> None:
    address = Address()
    (tmp_path / "text.gz.part").write_bytes(CONTENT)
    fetch(site.corpus(address), tmp_path)
    assert names(tmp_path) == ["text.gz"]
    assert address.asked == []


def test_a_server_without_ranges_starts_anew(site: Site, tmp_path: Path) -> None:
    address = Address(ranges=False)
    (tmp_path / "text.gz.part").write_bytes(OTHER[:4000])
    fetch(site.corpus(address), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == ["bytes=4000-"]


def test_what_is_longer_than_wanted_is_fetched_anew(site: Site, tmp_path: Path) -> None:
    address = Address()
    (tmp_path / "text.gz.part").write_bytes(CONTENT + b"x")
    fetch(site.corpus(address), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == [None]


def test_a_smaller_file_of_a_mirror_does_not_cost_what_is_there(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, right = Address(CONTENT[:300]), Address()  # the first answers 416
    (tmp_path / "text.gz.part").write_bytes(CONTENT[:4000])
    fetch(site.corpus(small, right), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert small.asked == ["bytes=4000-", None]
    assert right.asked == ["bytes=4000-"]
    assert "/0: answers with 300 bytes of application/gzip" in capsys.readouterr().out


def test_a_wrong_beginning_is_thrown_away_and_the_same_address_asked_again(
    site: Site, tmp_path: Path
) -> None:
    address = Address()
    (tmp_path / "text.gz.part").write_bytes(OTHER[:4000])
    fetch(site.corpus(address), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == ["bytes=4000-", None]


def test_a_connection_that_breaks_is_resumed_as_long_as_it_gets_on(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = Address(most=[1000] * 8)  # more than may bring nothing
    fetch(site.corpus(address), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == [None, *(f"bytes={done}-" for done in range(1000, 9000, 1000))]
    assert "the connection ended; going on from 3,000 of 10,000 bytes" in capsys.readouterr().out


def test_a_connection_that_stalls_is_resumed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    monkeypatch.setattr(download, "CHUNK", 1000)
    address = Address(most=[2000], stalls=True)
    began = time.monotonic()
    fetch(site.corpus(address), tmp_path)
    assert time.monotonic() - began < 5
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == [None, "bytes=2000-"]


def test_an_answer_in_chunks_that_breaks_is_resumed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "CHUNK", 1000)
    address = Address(chunked=True, most=[2000])
    fetch(site.corpus(address), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert address.asked == [None, "bytes=2000-"]


def test_an_address_that_gets_no_further_is_left_for_the_next(site: Site, tmp_path: Path) -> None:
    stuck, right = Address(most=[4000] + [0] * 99), Address()
    fetch(site.corpus(stuck, right), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert stuck.asked == [None] + ["bytes=4000-"] * 5
    assert right.asked == ["bytes=4000-"]  # what the first gave is kept


def test_breaking_off_ever_earlier_is_no_progress(site: Site, tmp_path: Path) -> None:
    lame = Address(ranges=False, most=[4000, *[2000, 3000] * 50])
    with pytest.raises(UserError, match="the connection ended"):
        fetch(site.corpus(lame), tmp_path)
    assert len(lame.asked) == 6


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (Address(PAGE, "text/html"), "answers with 705 bytes of text/html, not the 10,000 of"),
        (
            Address(CONTENT, "text/html; charset=utf-8", tells_length=False),
            "answers with text/html, not the 10,000 of text.gz",
        ),
        (Address(CONTENT[1:]), "answers with 9,999 bytes of application/gzip, not the 10,000 of"),
        (Address(CONTENT + b"x", tells_length=False), "gives more than the 10,000 bytes of"),
        (Address(garbage=True), "220 ready"),
        (Address(status=404), "answers with HTTP status 404"),
        (Address(status=503), "answers with HTTP status 503"),
        (Address(OTHER), f"gives text.gz with sha256 {hashlib.sha256(OTHER).hexdigest()}, not "),
    ],
)
def test_what_is_not_the_file_is_said_and_the_next_address_used(
    site: Site,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    address: Address,
    said: str,
) -> None:
    address.asked.clear()
    right = Address(before=lambda: left.extend(names(tmp_path)))
    left: list[str] = []  # in the folder when the next address is asked
    fetch(site.corpus(address, right), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
    assert left == []
    assert len(address.asked) == 1
    assert f"http://127.0.0.1:{site.server_port}/0: {said}" in capsys.readouterr().out


def test_of_too_long_an_answer_little_is_read_and_nothing_left(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = download._read
    asked = []

    def spy(response: HTTPResponse, most: int) -> bytes:
        asked.append(most)
        return read(response, most)

    monkeypatch.setattr(download, "_read", spy)
    with pytest.raises(UserError, match=r"gives more than the 10,000 bytes of text\.gz"):
        fetch(site.corpus(Address(CONTENT * 2, tells_length=False)), tmp_path)
    assert sum(asked) == 10_001
    assert names(tmp_path) == []


def test_an_answer_without_a_length_is_taken(site: Site, tmp_path: Path) -> None:
    fetch(site.corpus(Address(tells_length=False)), tmp_path)
    assert (tmp_path / "text.gz").read_bytes() == CONTENT


def test_another_range_than_asked_for_is_refused(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shifted, right = Address(shift=10), Address()
    (tmp_path / "text.gz.part").write_bytes(CONTENT[:4000])
    fetch(site.corpus(shifted, right), tmp_path)
    assert right.asked == ["bytes=4000-"]
    assert "/0: answers with the range 'bytes 4010-9999/10000' when" in capsys.readouterr().out


def test_when_all_fail_one_line_says_what_is_wanted_why_and_where(
    site: Site, tmp_path: Path
) -> None:
    corpus = site.corpus(Address(PAGE, "text/html"), Address(status=404))
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    corpus.files[0].urls.append(f"http://127.0.0.1:{port}/2")
    with pytest.raises(UserError) as error:
        fetch(corpus, tmp_path)
    here = f"http://127.0.0.1:{site.server_port}"
    assert str(error.value) == (
        f"text.gz (10,000 bytes, sha256 {WANTED}) cannot be fetched: "
        f"{here}/0: answers with 705 bytes of text/html, not the 10,000 of text.gz; "
        f"{here}/1: answers with HTTP status 404; "
        f"http://127.0.0.1:{port}/2: Connection refused; "
        f"put it into {tmp_path}, or name its folder with --raw-dir"
    )
    assert names(tmp_path) == []


def test_another_file_of_that_name_is_refused_and_left_alone(site: Site, tmp_path: Path) -> None:
    address = Address()
    (tmp_path / "text.gz").write_bytes(OTHER)
    with pytest.raises(UserError) as error:
        fetch(site.corpus(address), tmp_path)
    said = str(error.value)
    assert said.startswith(f"{tmp_path / 'text.gz'}: its sha256 is ")
    assert hashlib.sha256(OTHER).hexdigest() in said and WANTED in said
    assert "remove it" in said and "\n" not in said
    assert (tmp_path / "text.gz").read_bytes() == OTHER
    assert address.asked == []


def test_a_full_disk_is_no_fault_of_the_network(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Address(), Address()
    corpus = site.corpus(first, second)
    opened = Path.open

    def fill(path: Path, mode: str = "r", *rest: Any, **named: Any) -> Any:
        file: Any = opened(path, mode, *rest, **named)
        if not path.name.endswith(".part") or "r" in mode:
            return file
        file.close()
        return opened(Path("/dev/full"), "wb", buffering=0)

    monkeypatch.setattr(Path, "open", fill)
    with pytest.raises(OSError, match="No space left") as error:
        fetch(corpus, tmp_path)
    assert error.value.errno == errno.ENOSPC
    assert len(first.asked) == 1 and second.asked == []


def test_interrupted_it_leaves_what_is_there_to_go_on_from(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = Address()
    corpus = site.corpus(address)
    monkeypatch.setattr(download, "CHUNK", 1000)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(console.Progress, "update", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fetch(corpus, tmp_path)
    assert names(tmp_path) == ["text.gz.part"]
    fetch(corpus, tmp_path)
    assert address.asked == [None, "bytes=1000-"]
    assert (tmp_path / "text.gz").read_bytes() == CONTENT


def test_two_at_once_fetch_it_once(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    go_on = threading.Event()
    address = Address(before=lambda: go_on.wait(10))
    corpus = site.corpus(address)
    both = [threading.Thread(target=fetch, args=(corpus, tmp_path)) for _ in range(2)]
    for thread in both:
        thread.start()
    said = ""
    for _ in range(500):
        said += capsys.readouterr().out
        if said:
            break
        time.sleep(0.01)
    go_on.set()
    for thread in both:
        thread.join()
    assert said.strip() == f"{tmp_path}: another process fetches into it; waiting for that"
    assert address.asked == [None]
    assert (tmp_path / "text.gz").read_bytes() == CONTENT
