"""Contents of buffers, and what every operation must make of them, in closed form.

Every function works on whole numbers and on integer tensors alike (it uses operators only), so that the same formulas run on
the GPU, where results are checked, and in plain Python, where they are tested. Knows nothing of NCCL or of processes.

A source (a rank, or a pair of ranks) fills element `i` with `f(i) + (source + 1) * g(i)`: the sum over any set of sources is
then known without adding buffers, and a byte from a wrong place, a wrong source or an earlier round (`salt`) is seen.
"""

# Kinds of content: bytes of an element. Floating point is exact as long as sums stay below 257 (bf16 has 8 bits).
BYTES = {"i32": 4, "i64": 8, "u8": 1, "bf16": 2}
# Spreads 64-bit content over all eight bytes.
WIDE = (1 << 32) + 3
# Sources are below this; a pair of ranks is the source `sender * PAIR + receiver`.
PAIR = 64
# What outputs hold before: no content has it, except by chance in single bytes.
BLANK = {"i32": -1, "i64": -1, "u8": 0xA5, "bf16": -1}


def pair(sender, receiver):
    """The source of what `sender` has for `receiver` alone."""
    return sender * PAIR + receiver


def _parts(i, salt, kind):
    if kind == "bf16":
        return (i * 5 + salt) & 7, (i & 3) + 1
    return (i * 2654435 + salt * 40503) & 0xFFFF, (i & 1023) + 1


def _finish(number, kind):
    if kind == "u8":
        return number & 0xFF
    return number * WIDE if kind == "i64" else number


def value(i, source, salt, kind):
    """Element `i` of what `source` fills in round `salt`."""
    f, g = _parts(i, salt, kind)
    return _finish(f + g * (source + 1), kind)


def total(i, sources, salt, kind):
    """Element `i` of the sum over `sources`, as integers that wrap like the type."""
    f, g = _parts(i, salt, kind)
    return _finish(f * len(sources) + g * sum(source + 1 for source in sources), kind)


def kind_of(size_bytes):
    """Content for a buffer of this size: 4-byte integers, or single bytes if they do not fit."""
    return "i32" if size_bytes % 4 == 0 else "u8"


def elements(size_bytes, kind, parts=1):
    """Elements of each of `parts` equal parts of a buffer of about this size; rounded up, so that only 0 is 0."""
    unit = BYTES[kind] * parts
    return -(-size_bytes // unit)
