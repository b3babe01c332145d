"""Corpora are described as they were published, and a wrong description is refused."""

from pathlib import Path

import pytest
import yaml

from qknorm_fairseq.experiment import settings
from qknorm_fairseq.experiment.corpora import load_corpus
from qknorm_fairseq.experiment.download import RemoteFile
from qknorm_fairseq.experiment.errors import UserError

# file -> bytes and sha256 that were published for it
PUBLISHED = {
    "ted": {
        "ted_talks.tar.gz": (
            352222045,
            "03457b9ebc6d60839f1a48c5a03c940266aff78b81fcda4c6d9e2a5a7fb670ae",
        ),
    },
    "iwslt15-en-vi": {
        "train.en": (13603614, "c26dfeed74b6bf3752f5ca552f2412456f0de153f7c804df8717931fb3a5c78a"),
        "train.vi": (18074646, "707206edf2dc0280273952c7b70544ea8a1363aa69aaeb9d70514b888dc3067d"),
        "tst2012.en": (140250, "b8fbcd0d4199d41276421d1f7228298df67dd9e2c5c134c2ee8cdf3ec27801e2"),
        "tst2012.vi": (188396, "01004078b3f36b0c46e81b65fc6851230b3c823405c76d1d82ef3b786b512ff0"),
        "tst2013.en": (132264, "3860ce60bc5b85d96cc2d3d580cf1bc9d62440e939c1b964676d3607c4e8f1df"),
        "tst2013.vi": (183855, "29af16842808da2812b8fd4d47fc05d082ba870e60ab7755090ad04b380994cd"),
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_corpora_are_those_that_were_published(name: str) -> None:
    corpus = load_corpus(name)
    assert {file.name: (file.bytes, file.sha256) for file in corpus.files} == PUBLISHED[name]
    assert all(len(file.urls) == 2 for file in corpus.files)


def test_form_and_splits_of_the_corpora() -> None:
    ted, iwslt = load_corpus("ted"), load_corpus("iwslt15-en-vi")
    assert ted.form == "ted" and iwslt.form == "parallel"
    assert ted.splits == {"train": "train", "dev": "dev", "test": "test"}
    assert iwslt.splits == {"train": "train", "dev": "tst2012", "test": "tst2013"}
    mirrors = {file.name: file.urls[1].rsplit("/", 1)[1] for file in iwslt.files}
    assert mirrors["tst2012.vi"] == "dev.vi" and mirrors["tst2013.en"] == "test.en"


def test_an_unknown_corpus_is_refused_with_those_known() -> None:
    with pytest.raises(UserError, match=r"unknown corpus 'news'; known: iwslt15-en-vi, ted; or"):
        load_corpus("news")


FILE = {"name": "a.gz", "bytes": 1, "sha256": "0" * 64, "urls": ["http://a/a.gz"]}
RIGHT = {"description": "d", "licence": "l", "form": "parallel", "files": [FILE]}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (None, "NoneType"),
        ({key: RIGHT[key] for key in ("description", "licence", "form")}, "'files'"),
        ({**RIGHT, "colour": "red"}, "'colour'"),
        ({**RIGHT, "description": 5}, "description and licence must be text"),
        ({**RIGHT, "form": "xml"}, "form is 'xml', but must be ted or parallel"),
        ({**RIGHT, "splits": 5}, "splits must name a file stem for each of train, dev, test"),
        ({**RIGHT, "splits": {"train": "train"}}, "splits must name a file stem"),
        ({**RIGHT, "splits": {"train": 1, "dev": "d", "test": "t"}}, "splits must name"),
        (
            {**RIGHT, "form": "ted", "splits": {"train": "a", "dev": "d", "test": "t"}},
            "splits are for the form parallel alone",
        ),
        ({**RIGHT, "files": []}, "files must list at least one file"),
        ({**RIGHT, "files": ["a.gz"]}, "RemoteFile"),
        ({**RIGHT, "files": [{"name": "a.gz"}]}, "'bytes', 'sha256', and 'urls'"),
        ({**RIGHT, "files": [{**FILE, "name": "../a.gz"}]}, "name must be that of a file"),
        ({**RIGHT, "files": [{**FILE, "bytes": True}]}, "a.gz: bytes must be a whole number"),
        ({**RIGHT, "files": [{**FILE, "sha256": "0" * 63}]}, "a.gz: sha256 must be 64"),
        ({**RIGHT, "files": [{**FILE, "sha256": int("1" * 64)}]}, "a.gz: sha256 must be 64"),
        ({**RIGHT, "files": [{**FILE, "urls": "http://a"}]}, "a.gz: urls must list addresses"),
        ({**RIGHT, "files": [{**FILE, "urls": ["file:///a"]}]}, "a.gz: urls must list addresses"),
    ],
)
def test_a_wrong_description_of_a_corpus_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: object, said: str
) -> None:
    path = tmp_path / "corpora" / "some.yaml"
    path.parent.mkdir()
    monkeypatch.setattr(settings, "CONFIGS", tmp_path)
    path.write_text(yaml.safe_dump(RIGHT))
    assert load_corpus("some").files == [RemoteFile("a.gz", 1, "0" * 64, ["http://a/a.gz"])]
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(UserError) as error:
        load_corpus("some")
    assert str(error.value).startswith(f"{path}: ") and said in str(error.value)
    assert "\n" not in str(error.value)
