"""What a person sees: a line a stage, bars on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable
from types import TracebackType

from tqdm import tqdm


def duration(seconds: float) -> str:
    """Seconds as a person says them: "45 s", "14 min", "2 h 05 min"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def say(text: str) -> None:
    """A line about the stage that runs, below it."""
    print(f"{'':<17}{text}", flush=True)


class Stages:
    """Numbers the stages of a command; says which one runs, what came of it and the time."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.number = 0

    def start(self, name: str, text: str) -> None:
        """Announce a stage."""
        self.number += 1
        self.began = time.monotonic()
        print(f"[{self.number}/{self.total}] {name:<10} {text}", flush=True)

    def done(self, text: str) -> None:
        """Say what came of it."""
        took = duration(time.monotonic() - self.began)
        say(f"{text:<60} {took}")


class Progress:
    """The state of one long job: a bar on a terminal, else a line now and then."""

    SECONDS_BETWEEN_LINES = 60.0

    def __init__(self, label: str, total: int, unit: str, row: int = 0) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.began = self.last_line = time.monotonic()
        self.first: int | None = None
        self.bar = None
        if sys.stderr.isatty():
            layout = " " * 17 + "{desc} {bar:20} {n_fmt}/{total_fmt} {unit}{postfix}"
            self.bar = tqdm(
                total=total, desc=label, unit=unit, position=row, leave=False, bar_format=layout
            )

    def update(self, done: int, note: str = "") -> None:
        """Say that ``done`` of the total is done."""
        now = time.monotonic()
        if self.first is None:
            self.first = done  # a resumed job starts further on
        note = ", ".join(filter(None, [note, self._time_left(done, now)]))
        if self.bar is not None:
            self.bar.n = min(done, self.total)
            self.bar.set_postfix_str(note)
        elif now - self.last_line >= self.SECONDS_BETWEEN_LINES:
            self.last_line = now
            state = f"{self.label}  {done:,}/{self.total:,} {self.unit}"
            say(", ".join(filter(None, [state, note])))

    def _time_left(self, done: int, now: float) -> str:
        if self.first is None or done <= self.first:
            return ""
        return duration((now - self.began) / (done - self.first) * (self.total - done)) + " left"

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def each_shown(lines: list[str], step: Callable[[str], str], label: str) -> list[str]:
    """What ``step`` makes of each line, with the progress shown."""
    done = []
    with Progress(label, len(lines), "lines") as progress:
        for line in lines:
            done.append(step(line))
            if len(done) % 1000 == 0:
                progress.update(len(done))
    return done
