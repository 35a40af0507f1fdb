"""The operations: each fills its buffers, runs through torch.distributed, and checks every element on the device.

Runs on each rank's main thread. Buffers are made and compared on the device by the closed forms of `forms`.
"""

import time

import torch
import torch.distributed as dist

import forms
from control import median

TYPES = {"i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "bf16": torch.bfloat16}


class Scene:
    """A communicator as one rank sees it. `ranks` are global; `me` is this process's global rank."""

    def __init__(self, group, ranks, me, device):
        self.group, self.ranks, self.me, self.device = group, list(ranks), me, device
        self.at = self.ranks.index(me) if me in self.ranks else -1
        self.cuda = device.type == "cuda"

    def sync(self):
        """Waits for the device."""
        if self.cuda:
            torch.cuda.synchronize()

    def peer(self, distance):
        """The global rank so many places further in the communicator."""
        return self.ranks[(self.at + distance) % len(self.ranks)]


class Check:
    """What has been compared so far on this rank."""

    def __init__(self):
        self.checked = self.wrong = 0
        self.first = None

    def compare(self, got, expected, kind, what):
        """Compares all elements; remembers the first wrong one. Both are flat tensors of the same size."""
        if got.numel() != expected.numel():
            raise AssertionError(f"{what}: {got.numel()} elements against {expected.numel()}")
        self.checked += got.numel() * forms.BYTES[kind]
        if got.numel() == 0 or torch.equal(got, expected):
            return
        bad = (got != expected).nonzero().flatten()
        self.wrong += bad.numel() * forms.BYTES[kind]
        if self.first is None:
            index = int(bad[0])
            self.first = f"{what}: index {index}: got {got[index].item()}, must be {expected[index].item()}"

    def result(self, time_us=None):
        """As it is told to rank 0."""
        return {
            "checked_bytes": self.checked, "wrong_bytes": self.wrong, "first": self.first, "time_us": time_us,
        }


def index(count, device, start=0):
    """Indices `start`.. as 64-bit integers."""
    return torch.arange(start, start + count, dtype=torch.int64, device=device)


def filled(count, source, salt, kind, device, start=0):
    """A buffer as `source` fills it."""
    return forms.value(index(count, device, start), source, salt, kind).to(TYPES[kind])


def summed(count, sources, salt, kind, device, start=0):
    """The sum of the buffers of all sources."""
    return forms.total(index(count, device, start), sources, salt, kind).to(TYPES[kind])


def blank(count, kind, device):
    """A buffer that holds nothing right."""
    return torch.full((count,), forms.BLANK[kind], dtype=TYPES[kind], device=device)


class Operation:
    """One operation on one communicator: `start()` enqueues it, `check(into)` compares after it.

    A rank without a part in it has `takes_part` false and neither is called.
    """

    takes_part = True

    def __init__(self, scene, case, salt):
        self.scene, self.case, self.salt = scene, case, salt
        self.kind = forms.kind_of(case.size)
        self.make()

    def count(self, parts=1):
        """Elements of a part of the buffer."""
        return forms.elements(self.case.size, self.kind, parts)

    def fill(self, count, source, start=0):
        """A buffer of this operation's content."""
        return filled(count, source, self.salt, self.kind, self.scene.device, start)

    def fresh(self, count):
        """An output."""
        return blank(count, self.kind, self.scene.device)


class AllReduce(Operation):
    """In place."""

    def make(self):
        self.kind = {"all_reduce_i64": "i64", "all_reduce_bf16": "bf16"}.get(self.case.op, self.kind)
        self.data = self.fill(self.count(), self.scene.me)

    def start(self):
        dist.all_reduce(self.data, group=self.scene.group)

    def check(self, into):
        expected = summed(self.count(), self.scene.ranks, self.salt, self.kind, self.scene.device)
        into.compare(self.data, expected, self.kind, "sum")


class AllGather(Operation):
    """Size is that of the output."""

    def make(self):
        self.each = self.count(len(self.scene.ranks))
        self.given = self.fill(self.each, self.scene.me)
        self.out = self.fresh(self.each * len(self.scene.ranks))

    def start(self):
        dist.all_gather_into_tensor(self.out, self.given, group=self.scene.group)

    def check(self, into):
        for place, rank in enumerate(self.scene.ranks):
            got = self.out[place * self.each:(place + 1) * self.each]
            into.compare(got, self.fill(self.each, rank), self.kind, f"part of rank {rank}")


class ReduceScatter(Operation):
    """Size is that of the input."""

    def make(self):
        self.each = self.count(len(self.scene.ranks))
        self.given = self.fill(self.each * len(self.scene.ranks), self.scene.me)
        self.out = self.fresh(self.each)

    def start(self):
        dist.reduce_scatter_tensor(self.out, self.given, group=self.scene.group)

    def check(self, into):
        start = self.each * self.scene.at
        expected = summed(self.each, self.scene.ranks, self.salt, self.kind, self.scene.device, start)
        into.compare(self.out, expected, self.kind, f"sum from {start}")


class Broadcast(Operation):
    """From `case.root`, a place in the communicator."""

    def make(self):
        self.root = self.scene.ranks[max(self.case.root, 0)]
        mine = self.scene.me == self.root
        self.data = self.fill(self.count(), self.root) if mine else self.fresh(self.count())

    def start(self):
        dist.broadcast(self.data, src=self.root, group=self.scene.group)

    def check(self, into):
        into.compare(self.data, self.fill(self.count(), self.root), self.kind, f"from rank {self.root}")


class Reduce(Operation):
    """To `case.root`; the others' buffers are not specified afterwards."""

    def make(self):
        self.root = self.scene.ranks[self.case.root]
        self.data = self.fill(self.count(), self.scene.me)

    def start(self):
        dist.reduce(self.data, dst=self.root, group=self.scene.group)

    def check(self, into):
        if self.scene.me == self.root:
            expected = summed(self.count(), self.scene.ranks, self.salt, self.kind, self.scene.device)
            into.compare(self.data, expected, self.kind, "sum")


class AllToAll(Operation):
    """Size is that of a rank's input, and of its output."""

    def make(self):
        self.each = self.count(len(self.scene.ranks))
        mine = [self.fill(self.each, forms.pair(self.scene.me, to)) for to in self.scene.ranks]
        self.given = torch.cat(mine)
        self.out = self.fresh(self.each * len(self.scene.ranks))

    def start(self):
        dist.all_to_all_single(self.out, self.given, group=self.scene.group)

    def check(self, into):
        for place, rank in enumerate(self.scene.ranks):
            got = self.out[place * self.each:(place + 1) * self.each]
            expected = self.fill(self.each, forms.pair(rank, self.scene.me))
            into.compare(got, expected, self.kind, f"part of rank {rank}")


class SendRecv(Operation):
    """Every rank sends to the one at `case.distance` and receives from the one as far on its other side."""

    def make(self):
        self.to, self.source = self.scene.peer(self.case.distance), self.scene.peer(-self.case.distance)
        self.given = self.fill(self.count(), forms.pair(self.scene.me, self.to))
        self.out = self.fresh(self.count())

    def start(self):
        group = self.scene.group
        both = [
            dist.P2POp(dist.isend, self.given, self.to, group=group),
            dist.P2POp(dist.irecv, self.out, self.source, group=group),
        ]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    def check(self, into):
        expected = self.fill(self.count(), forms.pair(self.source, self.scene.me))
        into.compare(self.out, expected, self.kind, f"from rank {self.source}")


class PingPong(Operation):
    """One at a time between the first rank and the opposite one; PyTorch makes a communicator of two for it."""

    def make(self):
        opposite = len(self.scene.ranks) // 2
        self.takes_part = self.scene.at in (0, opposite)
        self.other = self.scene.ranks[opposite if self.scene.at == 0 else 0]
        if self.takes_part:
            self.given = self.fill(self.count(), forms.pair(self.scene.me, self.other))
            self.out = self.fresh(self.count())

    def start(self):
        if self.scene.at == 0:
            dist.send(self.given, self.other, group=self.scene.group)
            dist.recv(self.out, self.other, group=self.scene.group)
        else:
            dist.recv(self.out, self.other, group=self.scene.group)
            dist.send(self.given, self.other, group=self.scene.group)

    def check(self, into):
        expected = self.fill(self.count(), forms.pair(self.other, self.scene.me))
        into.compare(self.out, expected, self.kind, f"from rank {self.other}")


class Barrier(Operation):
    """Nothing but time to look at."""

    def make(self):
        self.extra = {"device_ids": [0]} if self.scene.cuda else {}

    def start(self):
        dist.barrier(group=self.scene.group, **self.extra)

    def check(self, into):
        """A barrier carries no data."""


OPERATIONS = {
    "barrier": Barrier, "all_reduce": AllReduce, "all_reduce_i64": AllReduce, "all_reduce_bf16": AllReduce,
    "all_gather": AllGather, "reduce_scatter": ReduceScatter, "broadcast": Broadcast, "reduce": Reduce,
    "all_to_all": AllToAll, "send_recv": SendRecv, "ping_pong": PingPong,
}


def timed(scene, start, iterations):
    """Microseconds of each iteration, one after the other: what a program sees that waits for each."""
    times = []
    for _ in range(iterations):
        if scene.cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            start()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        else:
            begin = time.perf_counter()
            start()
            times.append((time.perf_counter() - begin) * 1e6)
    return times


def run(scene, case, salt, iterations):
    """Runs a case: once checked, then timed after one more to warm up. Returns this rank's result."""
    check = Check()
    if scene.at < 0:
        return check.result()
    operation = OPERATIONS[case.op](scene, case, salt)
    if not operation.takes_part:
        return check.result()
    scene.sync()
    operation.start()
    scene.sync()
    operation.check(check)
    if not iterations:
        return check.result()
    operation.start()
    scene.sync()
    return check.result(median(timed(scene, operation.start, iterations)))
