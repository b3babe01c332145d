"""The experiment around the plugin, in the order in which it runs.

``settings`` (pairs, arms and profiles as data) -> ``corpus`` and ``prepare`` (raw text to
binarised data) -> ``run`` and ``training`` -> ``translate`` -> ``score`` -> ``report``;
``reproduce`` is the whole of it. Beside it, ``released`` knows the authors' code's models by
their own names; ``parity`` compares with its numbers, ``convert`` carries its files over and
back. fairseq is reached by its commands and its public Python
API alone.
"""
