"""Speed and memory beside stock fairseq: `qknorm benchmark`.

``shapes`` says what is computed and ``systems`` by whom; ``timing`` runs systems in turn, round
by round, so that what disturbs the machine disturbs all alike. ``training``, ``decoding``,
``attention`` and ``pipeline`` measure one thing each, ``table`` puts them together.
"""
