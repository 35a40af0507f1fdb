"""What is run: configurations of NCCL, operations, sizes. Pure.

A configuration is an algorithm and a protocol, set in the environment before a communicator is made. Each is run with the
operations that it concerns; the largest sizes only where they tell something new.
"""

from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20

SIZES = [0, 4, KIB, 1001, 8 * KIB, 64 * KIB, 64 * KIB + 1, MIB, MIB - 4, 64 * MIB]
QUICK_SIZES = [0, 4, KIB, 8 * KIB, 64 * KIB + 1, MIB]
# Protocols that are forced are run up to here: LL doubles what is sent.
PROTO_MOST = 8 * MIB
# Operations that come once a root or a distance are run with all of them up to here, and with two of them above.
EVERY_MOST = 64 * KIB

RINGED = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]
ALL = [
    "barrier", "all_reduce", "all_reduce_i64", "all_reduce_bf16", "all_gather", "reduce_scatter", "broadcast", "reduce",
    "all_to_all", "send_recv", "ping_pong",
]
HARD = "allreduce:tree;allgather:pat;reducescatter:pat"


@dataclass(frozen=True)
class Config:
    """A configuration of NCCL; `expect`: function to the (algorithm, protocol) that its log must name, None for any."""

    name: str
    algo: str = ""
    proto: str = ""
    ops: tuple = tuple(ALL)
    most: int = 1 << 62
    expect: dict = field(default_factory=dict)


def _forced(algo, text, ops, functions):
    for proto in ("LL", "LL128", "Simple"):
        expect = {function: (algo.upper(), proto.upper()) for function in functions}
        yield Config(f"{algo}-{proto}", text, proto, tuple(ops), PROTO_MOST, expect)


RING_FUNCTIONS = ["AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"]
CONFIGS = [
    Config("default"),
    Config("tree+pat", HARD, "", ("barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"),
           expect={"AllReduce": ("TREE", None), "AllGather": ("PAT", None), "ReduceScatter": ("PAT", None)}),
    Config("ring", "ring", "", tuple(RINGED), expect={function: ("RING", None) for function in RING_FUNCTIONS}),
    Config("tree", "allreduce:tree", "", ("all_reduce", "barrier"), expect={"AllReduce": ("TREE", None)}),
    Config("pat", "allgather:pat;reducescatter:pat", "", ("all_gather", "reduce_scatter"),
           expect={"AllGather": ("PAT", None), "ReduceScatter": ("PAT", None)}),
    *_forced("tree", "allreduce:tree", ["all_reduce"], ["AllReduce"]),
    *_forced("ring", "ring", RINGED, RING_FUNCTIONS),
]
QUICK = ["default", "tree+pat", "ring"]
# Groups of some of the nodes: those between them relay for a communicator in which they have no part.
SUBGROUPS = [(0, 2), (0, 3), (1, 3)]
SUBGROUP_OPS = ["all_reduce", "all_gather", "all_to_all", "broadcast"]
SUBGROUP_SIZES = [4, 8 * KIB, MIB]


@dataclass(frozen=True)
class Case:
    """One operation at one size."""

    op: str
    size: int
    root: int = -1
    distance: int = 0

    def label(self):
        """The operation in words."""
        root = f" root {self.root}" if self.root >= 0 else ""
        return f"{self.op}{root}" + (f" distance {self.distance}" if self.distance else "")


def cases(ops, sizes, nodes):
    """All cases of some operations, small ones first, so that little is lost when time runs out."""
    found = []
    for size in sorted(sizes):
        for op in ops:
            if op == "barrier":
                found += [Case(op, 0)] if size == min(sizes) else []
            elif op in ("all_reduce_i64", "all_reduce_bf16"):
                found += [Case(op, size)] if size in (8 * KIB, MIB) else []
            elif op in ("broadcast", "reduce"):
                roots = range(nodes) if size <= EVERY_MOST else sorted({0, nodes // 2})
                found += [Case(op, size, root=root) for root in roots]
            elif op == "send_recv":
                every = range(1, nodes)
                distances = every if size <= EVERY_MOST else sorted({1, nodes // 2})
                found += [Case(op, size, distance=distance) for distance in distances]
            else:
                found.append(Case(op, size))
    return found


def iterations(size):
    """Timed iterations of a size, after the warm-up."""
    return 20 if size <= 64 * KIB else 10 if size <= MIB else 5 if size <= 8 * MIB else 3


def parse_size(text):
    """A number of bytes, with K, M or G for powers of 1024."""
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    return int(text[:-1] if shift else text) << shift
