"""The paper's parts in plain torch: nothing here knows of fairseq.

Read ``qk_norm`` first (the paper's idea), then ``attention`` (where it acts), then the
pieces both systems share: ``residual_norm``, ``embedding`` and ``positions``. What makes it fast is
apart: ``packing`` (no padding), ``dropout`` and ``key_value_cache``.
"""
