"""Models; importing them registers every part of the plugin.

fairseq imports a user directory's ``tasks`` and ``models`` before it reads the command
line, but not its ``criterions`` and ``optim``: those are imported here.
"""

import qknorm_fairseq.criterions.target_vocab_label_smoothed_cross_entropy
import qknorm_fairseq.models.transformer_qknorm
import qknorm_fairseq.optim.fused_adam
import qknorm_fairseq.optim.lr_scheduler.validation_decay  # noqa: F401  (register)
