"""What can end a command early, and the exit status that each means."""


class UserError(Exception):
    """Wrong arguments or input: one line that names the file and the mend; exit status 2."""


class StageFailed(Exception):
    """A stage that should have worked did not: one line and where its log is; status 1."""
