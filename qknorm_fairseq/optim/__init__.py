"""Optimisation; imported by ``models``, since fairseq imports no user's ``optim``."""
