"""The files of a corpus in a folder, fetched if they are not there, and checked."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qknorm_fairseq.experiment.console import say
from qknorm_fairseq.experiment.corpora import Corpus
from qknorm_fairseq.experiment.download import download
from qknorm_fairseq.experiment.errors import UserError
from qknorm_fairseq.experiment.workspace import sha256


def fetch(corpus: Corpus, folder: Path) -> Path:
    """Make sure that all files of ``corpus`` are in ``folder``, each with the right sha256.

    Interrupted, it goes on where it stopped when called again.

    Raises:
        UserError: when a file there is another one, or no address gives it.
        OSError: when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in corpus.files:
        path = folder / file.name
        if not path.exists():
            with _turn(folder):
                if not path.exists():  # else another process has fetched it meanwhile
                    download(file, path)
        found = sha256(path)
        if found != file.sha256:
            raise UserError(
                f"{path}: its sha256 is {found}, not {file.sha256}; remove it, and it is "
                "fetched anew, or put the right one there"
            )
    return folder


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Wait until no other process fetches into ``folder``, and keep others waiting."""
    with (folder / ".fetching").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{folder}: another process fetches into it; waiting for that")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
