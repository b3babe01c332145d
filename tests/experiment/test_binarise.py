"""Sentences are counted as fairseq itself counts them."""

from pathlib import Path

import pytest
from fairseq.data import data_utils

from qknorm_fairseq.experiment.binarise import count_sentences
from qknorm_fairseq.experiment.errors import StageFailed
from qknorm_fairseq.experiment.workspace import Workspace


def test_the_index_says_what_fairseq_says(workspace: Workspace) -> None:
    for index in sorted((workspace.data("tiny") / "bin").glob("*.idx")):
        rows = data_utils.load_indexed_dataset(str(index.with_suffix("")))
        assert count_sentences(index) == len(rows) > 0


@pytest.mark.parametrize("content", [b"", b"TNTIDX\0\0" + bytes(40)])
def test_another_format_is_not_taken_for_a_count(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.idx").write_bytes(content)
    with pytest.raises(StageFailed, match=r"x\.idx: not an index of fairseq's mmap format"):
        count_sentences(tmp_path / "x.idx")
