"""The translation task; fairseq imports each file of this folder."""
