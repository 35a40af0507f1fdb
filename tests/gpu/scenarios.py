"""What one operation on one communicator does not show: two communicators at once, and operations recorded in a CUDA graph.

Runs on each rank's main thread.
"""

import torch
import torch.distributed as dist

import forms
from ops import Check, blank, filled, summed


def two_communicators(first, second, size, rounds):
    """All-reduces of two communicators on two streams, started in turns without waiting, then all checked."""
    check = Check()
    scenes = (first, second)
    kind = forms.kind_of(size)
    count = forms.elements(size, kind)
    # Different rounds and communicators have different content.
    salts = [[round_ * 2 + which for round_ in range(rounds)] for which in range(2)]
    data = [[filled(count, scene.me, salt, kind, scene.device) for salt in salts[which]]
            for which, scene in enumerate(scenes)]
    streams = [torch.cuda.Stream() for _ in scenes] if first.cuda else [None, None]
    first.sync()
    works = []
    for round_ in range(rounds):
        for which, scene in enumerate(scenes):
            if streams[which] is None:
                works.append(dist.all_reduce(data[which][round_], group=scene.group, async_op=True))
            else:
                with torch.cuda.stream(streams[which]):
                    dist.all_reduce(data[which][round_], group=scene.group)
    for work in works:
        work.wait()
    first.sync()
    for which, scene in enumerate(scenes):
        for round_ in range(rounds):
            expected = summed(count, scene.ranks, salts[which][round_], kind, scene.device)
            check.compare(data[which][round_], expected, kind, f"communicator {which} round {round_}")
    return check.result()


def graph(scene, size, replays):
    """An all-reduce recorded in a CUDA graph and replayed with new content each time."""
    check = Check()
    if not scene.cuda:
        return check.result()
    kind = forms.kind_of(size)
    count = forms.elements(size, kind)
    given = filled(count, scene.me, 0, kind, scene.device)
    out = blank(count, kind, scene.device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        # Connections are made before, not while recording.
        out.copy_(given)
        dist.all_reduce(out, group=scene.group)
    scene.sync()
    recorded = torch.cuda.CUDAGraph()
    # PyTorch's own threads query events meanwhile, which a global capture would forbid.
    with torch.cuda.graph(recorded, stream=stream, capture_error_mode="thread_local"):
        out.copy_(given)
        dist.all_reduce(out, group=scene.group)
    for salt in range(1, replays + 1):
        given.copy_(filled(count, scene.me, salt, kind, scene.device))
        out.fill_(forms.BLANK[kind])
        scene.sync()
        recorded.replay()
        scene.sync()
        check.compare(out, summed(count, scene.ranks, salt, kind, scene.device), kind, f"replay {salt}")
    # The communicator must outlive the graph.
    recorded.reset()
    scene.sync()
    return check.result()
