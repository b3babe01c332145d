"""Query-Key Normalization for low-resource translation, as a fairseq plugin.

Kept light on purpose: ``--user-dir qknorm_fairseq`` imports this package and then its
``tasks`` and ``models``, while ``qknorm --help`` imports it alone.
"""

__version__ = "0.1.0"
