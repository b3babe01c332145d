"""Packaging; what is pinned for development and for the experiments is in requirements.txt."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = (ROOT / "qknorm_fairseq" / "__init__.py").read_text().split('__version__ = "')[1]
BESIDE = {"qknorm_fairseq.configs": "configs", "qknorm_fairseq.data.toy": "data/toy"}

setup(
    name="qknorm-fairseq",
    version=VERSION.split('"')[0],
    description="Query-Key Normalization for low-resource translation, as a fairseq plugin",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    # the settings and the made-up language lie beside the package, and go into it when installed
    packages=[*find_packages(include=["qknorm_fairseq", "qknorm_fairseq.*"]), *BESIDE],
    package_dir=BESIDE,
    package_data={"qknorm_fairseq.configs": ["*/*.yaml"], "qknorm_fairseq.data.toy": ["*"]},
    python_requires=">=3.11,<3.13",
    install_requires=[
        "ve-fairseq>=0.12.3,<0.13",
        "torch>=2.13,<3",
        "nltk>=3.9,<4",
        "numpy>=2",
        "omegaconf>=2.3,<3",
        "PyYAML>=6",
        "sacrebleu>=2.6,<3",
        "sacremoses>=0.1",
        "scipy>=1.14",
        "sentencepiece>=0.2,<0.3",
        "subword-nmt>=0.3.8,<0.4",
        "tabulate>=0.9",
        "tqdm>=4.60",
    ],
    entry_points={"console_scripts": ["qknorm=qknorm_fairseq.cli:main"]},
)
