"""The way of the dev BLEU from the task that measures it to the schedule that goes by it.

fairseq shows a schedule validation results at the end of an epoch, after the checkpoint is
written, and those of validations within an epoch never. Task and schedule do not know each
other, and both exist once in a training process, as this does.
"""

from collections.abc import Callable


class DevBleu:
    """Passes each validation's BLEU on, at once, to whoever listens."""

    def __init__(self) -> None:
        self.expected = False  # whether a task of this process validates by BLEU
        self.listener: Callable[[int, float], None] | None = None

    def announce(self, update: int, bleu: float) -> None:
        """Tell the listener the ``bleu`` (0 to 100) after so many updates."""
        if self.listener:
            self.listener(update, bleu)


DEV_BLEU = DevBleu()
