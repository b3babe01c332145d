"""Archives that are broken, or made to do harm: one line that says so, and nothing written."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from qknorm_fairseq.experiment import archive
from qknorm_fairseq.experiment.corpus import SPLITS
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.ted import Extraction, Location, extract

TABLE = b"talk_name\ten\tgl\n" + b"talk\tone\tunha\n" * 2000
NAMES = [f"all_talks_{split}.tsv" for split in SPLITS]
Member = tuple[tarfile.TarInfo, bytes]


def member(name: str, content: bytes = TABLE, **attributes: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info, content


def tar(*members: Member, format: int = tarfile.PAX_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


GOOD = [member(name) for name in NAMES]
TABLES_ALONE = tar(*GOOD)[: 3 * (512 + -(-len(TABLE) // 512) * 512)]  # not the end of the tar


Read = Callable[..., Extraction]
Refused = Callable[..., str]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Extract from bytes stored as an archive; the folder must be left as it was."""

    def read(data: bytes, **options: int) -> Extraction:
        path = tmp_path / "ted.bin"
        path.write_bytes(data)
        try:
            return extract(Location(path, None), "gl", "en", **options)
        finally:
            assert list(tmp_path.iterdir()) == [path]

    return read


@pytest.fixture
def refused(read: Read, tmp_path: Path) -> Refused:
    """What is said of an archive: a line that begins with its path."""

    def refused(data: bytes, **options: int) -> str:
        with pytest.raises(UserError) as error:
            read(data, **options)
        message = str(error.value)
        assert message.startswith(f"{tmp_path / 'ted.bin'}: ")
        assert len(message.splitlines()) == 1
        assert re.search("; (fetch it again|convert the file|take it out of the file)", message)
        return message

    return refused


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, bz2.compress, lzma.compress, lambda x: lzma.compress(x, format=2)],
)
def test_any_compression_is_known_by_its_content(
    read: Read, pack: Callable[[bytes], bytes]
) -> None:
    found = read(pack(tar(*GOOD)))
    assert {split: len(pairs) for split, pairs in found.splits.items()} == dict.fromkeys(
        SPLITS, 2000
    )


def test_members_lie_in_any_folder_and_in_any_order_beside_others(
    read: Read,
) -> None:
    others = [
        member("._all_talks_train.tsv", b"\0\x05\x16\x07"),  # as macOS adds to an archive
        member("ted/._all_talks_dev.tsv", b"\0\x05\x16\x07"),
        member("ted", b"", type=tarfile.DIRTYPE),
        member("ted/latest.tsv", b"", type=tarfile.SYMTYPE, linkname="all_talks_dev.tsv"),
        member("ted/old_all_talks_dev.tsv", b"other"),
    ]
    tables = [member(f"ted/{name}") for name in reversed(NAMES)]
    found = read(tar(*others, *tables, member("ted/README", b"x" * 2_000_000)))
    assert list(found.splits) == list(SPLITS)
    assert len(found.splits["dev"]) == 2000


LINK = {"linkname": "/etc/passwd", "size": 0}
KINDS = [
    {"type": tarfile.SYMTYPE, **LINK},
    {"type": tarfile.LNKTYPE, **LINK},
    {"type": tarfile.CHRTYPE},
    {"type": tarfile.FIFOTYPE},
    {"type": tarfile.DIRTYPE},
]


@pytest.mark.parametrize("kind", KINDS, ids=["link", "hard link", "device", "pipe", "folder"])
def test_a_table_that_is_no_file_is_refused(refused: Refused, kind: dict[str, object]) -> None:
    message = refused(tar(member(NAMES[0], b"", **kind), *GOOD[1:]))
    assert "member 'all_talks_train.tsv' is not a regular file" in message


def test_a_sparse_table_is_refused(refused: Refused) -> None:
    headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": "1000000"}
    message = refused(tar(member(NAMES[0], b"x", pax_headers=headers), *GOOD[1:]))
    assert "member 'all_talks_train.tsv' is not a regular file" in message


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "/a\nb\udcff"])
def test_any_member_with_a_path_that_leads_out_is_refused(refused: Refused, name: str) -> None:
    for members in ([member(name, b""), *GOOD], [*GOOD, member(name, b"")]):
        assert f"member {name!r} has a path that leads out" in refused(tar(*members))


def test_two_members_for_one_split_are_refused(refused: Refused) -> None:
    message = refused(tar(*GOOD, member("ted/all_talks_train.tsv")))
    assert "member 'ted/all_talks_train.tsv' is there twice" in message


@pytest.mark.parametrize("where", ["before", "after"])
def test_more_bytes_than_allowed_are_refused_also_in_members_that_are_skipped(
    read: Read, refused: Refused, where: str
) -> None:
    big = [member("big", b"\0" * 4_000_000)]
    data = gzip.compress(tar(*(big + GOOD if where == "before" else GOOD + big)))
    size = 4_000_000 + 3 * len(TABLE)
    assert read(data, max_bytes=size)
    last = "big" if where == "after" else NAMES[2]
    message = refused(data, max_bytes=size - 1)
    assert f"member '{last}' makes it unpack to more than 4," in message


@pytest.mark.parametrize("begin", [b"", TABLES_ALONE], ids=["first", "later"])
def test_a_header_is_not_held_whatever_its_length(refused: Refused, begin: bytes) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 5 * 10**9
    data = gzip.compress(begin + info.tobuf()) + gzip.compress(b"x" * 50_000_000)
    tracemalloc.start()
    try:
        assert "cannot be read (it unpacks to more bytes than it should)" in refused(data)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_headers_that_tarfile_chokes_on_are_refused(refused: Refused) -> None:
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
    assert "cannot be read" in refused((info.tobuf() + b"x".ljust(512, b"\0")) * 1000)
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "x"}
    assert "cannot be read" in refused(tar(member(NAMES[0], b"x", pax_headers=headers)))


def test_more_members_than_any_corpus_has_are_refused(
    read: Read, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tar(*GOOD, *[member(f"{number}", b"") for number in range(50)])
    monkeypatch.setattr(archive, "MAX_MEMBERS", 53)
    assert read(data)
    monkeypatch.setattr(archive, "MAX_MEMBERS", 52)
    assert "member '49' is one of more than 52" in refused(data)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_truncated_archive_is_refused_wherever_it_ends(
    refused: Refused, pack: Callable[[bytes], bytes]
) -> None:
    data = pack(tar(*GOOD))
    for length in (0, 1, 5, 30, len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 1):
        assert "cannot be read (" in refused(data[:length])


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_an_archive_that_is_broken_inside_is_refused(
    refused: Refused, pack: Callable[[bytes], bytes]
) -> None:
    varied = b"".join(b"talk\t%d\t%d\n" % (number**5, number**7) for number in range(20_000))
    data = bytearray(pack(tar(member(NAMES[0], TABLE + varied), *GOOD[1:])))
    middle = len(data) // 2
    data[middle : middle + 40] = b"\xff" * 40
    assert "cannot be read (" in refused(bytes(data))


def test_a_truncated_plain_tar_is_refused(refused: Refused) -> None:
    table = len(TABLES_ALONE) // 3
    for length in (100, table - 600, 2 * table - 600, 3 * table - 600):
        assert "cannot be read (" in refused(TABLES_ALONE[:length])
    for length in (table, table + 100):  # between tables, where a tar may end
        assert "there is no all_talks_dev.tsv in it" in refused(TABLES_ALONE[:length])


def test_a_wrong_checksum_is_seen_at_the_end(refused: Refused) -> None:
    data = bytearray(gzip.compress(tar(*GOOD, member("later", b"x" * 100_000))))
    data[-8] ^= 1
    assert "cannot be read (CRC check failed" in refused(bytes(data))


@pytest.mark.parametrize("page", [b"<!DOCTYPE html>\n<p>", b"\xef\xbb\xbf \n<!-- x --><HTML>"])
def test_a_page_stored_as_an_archive_is_said_to_be_one(refused: Refused, page: bytes) -> None:
    assert "cannot be read (it is an HTML page" in refused(page)


def test_text_stored_as_an_archive_is_refused(refused: Refused) -> None:
    assert "cannot be read (" in refused(b"404 not found\n" * 100)


def test_what_is_wrong_within_a_member_is_located(refused: Refused) -> None:
    bad = member(NAMES[1], TABLE + b"talk\t\xff\t\n")
    message = refused(gzip.compress(tar(GOOD[0], bad, GOOD[2])))
    assert f"all_talks_dev.tsv, line 2002: byte {len(TABLE) + 5} is not UTF-8" in message


def test_a_packed_table_that_is_a_bomb_or_truncated_is_refused(tmp_path: Path) -> None:
    files = {split: tmp_path / f"all_talks_{split}.tsv.gz" for split in SPLITS}
    for path in files.values():
        path.write_bytes(gzip.compress(TABLE))
    location = Location(tmp_path, files)
    assert extract(location, "gl", "en", max_bytes=len(TABLE))
    with pytest.raises(UserError, match=r"train\.tsv\.gz: cannot be read \(it unpacks to more"):
        extract(location, "gl", "en", max_bytes=len(TABLE) - 1)
    files["dev"].write_bytes(gzip.compress(TABLE)[:-9])
    with pytest.raises(UserError, match=r"dev\.tsv\.gz: cannot be read \(.*\); fetch it again"):
        extract(location, "gl", "en")
