"""Training losses; imported by ``models``, since fairseq imports no user's criterions."""
