"""A line of text: the white space in it, and how it is written so that no symbol is mistaken.

Whatever stands in a line is text and is kept, with one exception: white space separates words
and means no more. Every character of ``WHITE_SPACE`` becomes a plain space, runs of them one,
and none is left at the ends. The tools further on would each break lines or words at another
part of that table.
"""

import re

# all that Unicode calls white space: what Python's str.split and fairseq's \s split at
WHITE_SPACE = {
    "\t": "tab",
    "\n": "line feed",
    "\v": "line tabulation",
    "\f": "form feed",
    "\r": "carriage return",
    "\x1c": "file separator",
    "\x1d": "group separator",
    "\x1e": "record separator",
    "\x1f": "unit separator",
    " ": "space",
    "\x85": "next line",
    "\xa0": "no-break space",
    "\u1680": "ogham space mark",
    "\u2000": "en quad",
    "\u2001": "em quad",
    "\u2002": "en space",
    "\u2003": "em space",
    "\u2004": "three-per-em space",
    "\u2005": "four-per-em space",
    "\u2006": "six-per-em space",
    "\u2007": "figure space",
    "\u2008": "punctuation space",
    "\u2009": "thin space",
    "\u200a": "hair space",
    "\u2028": "line separator",
    "\u2029": "paragraph separator",
    "\u202f": "narrow no-break space",
    "\u205f": "medium mathematical space",
    "\u3000": "ideographic space",
}
_RUN = re.compile(f"[{''.join(WHITE_SPACE)}]+")

# What means something to fairseq (<s> <pad> </s> <unk>), subword-nmt (@@) or sentencepiece (▁,
# and ▅, for which it would leave a line out) is broken by MARK, so that it stands in no word
# and can be no piece of one.
MARK = "␛"
_RESERVED = re.compile(f"{MARK}|▁|▅|<(?=(?:s|pad|/s|unk)>)|@(?=@)")
_ESCAPES = {MARK: MARK + MARK, "▁": f"{MARK}_", "▅": f"{MARK}=", "<": f"<{MARK}", "@": f"@{MARK}"}
_ESCAPED = re.compile(f"{MARK}([{MARK}_=]?)")
_MEANINGS = {MARK: MARK, "_": "▁", "=": "▅", "": ""}


def normalise(line: str) -> str:
    """The line with its white space made plain."""
    return _RUN.sub(" ", line).strip(" ")


def escape(line: str) -> str:
    """The line as the segmenter and the model see it; :func:`unescape` undoes it."""
    return _RESERVED.sub(lambda match: _ESCAPES[match[0]], line)


def unescape(line: str) -> str:
    """The line that :func:`escape` was given; of a model's own words, without stray marks."""
    return _ESCAPED.sub(lambda match: _MEANINGS[match[1]], line)
