"""Kills one rank in the middle of a loop of all-reduces and measures when the others are told.

Started once a node like matrix.py. On the victim's node this process only stands in for the rank, which runs as its child: so
the harness sees no failed node and lets the others run. The victim is not rank 0, which holds PyTorch's store. Exit status 0 only
if every survivor's operation failed within the limit; PyTorch's own time-out is far above it.
"""

import argparse
import datetime
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

from control import Watchdog, die, say
from matrix import log_settings

CHILD = "MESH_GPU_VICTIM"
# So many all-reduces are run before anybody is killed: all connections are made by then.
WARM = 20
# Seconds that a survivor stays after its error.
LINGER = 15


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--victim", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="survivors must be told within it")
    parser.add_argument("--size", type=int, default=4 << 20, metavar="BYTES")
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="an empty folder shared by all ranks")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--log-dir", type=pathlib.Path)
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
    return parser.parse_args()


def put(path, text):
    """Writes a file that appears whole."""
    draft = path.with_name(path.name + f".{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)


def wait_for(path, seconds):
    """Whether a file appears in time."""
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return path.exists()


def abort(args, watchdog, dist, device):
    """Does what a framework does with a broken communicator; returns the seconds that it takes."""
    watchdog.feed("abort of the communicator")
    begin = time.monotonic()
    if args.backend == "nccl":
        dist.group.WORLD._get_backend(device).abort()
    return round(time.monotonic() - begin, 3)


def work(args, rank, world):
    """A rank: all-reduces until one fails."""
    # An error is raised where the operation is waited for, and PyTorch does not end the process by itself.
    os.environ.update({
        "TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
    })
    log_settings(args, rank)
    watchdog = Watchdog(180)
    watchdog.feed("start and first all-reduces")
    import torch
    import torch.distributed as dist

    device = torch.device("cuda:0" if args.backend == "nccl" else "cpu")
    if args.backend == "nccl":
        torch.cuda.set_device(0)
    # Far above the limit: PyTorch's own time-out must not be what ends the wait.
    dist.init_process_group(args.backend, timeout=datetime.timedelta(seconds=args.limit + 120))
    data = torch.ones(args.size // 4, dtype=torch.int32, device=device)
    for turn in range(WARM):
        data.fill_(1)
        dist.all_reduce(data)
        if not bool((data == world).all()):
            raise AssertionError(f"rank {rank}: wrong sum in turn {turn}")
    put(args.dir / f"ready{rank}", str(os.getpid()))
    watchdog.feed("all-reduces until a rank is killed")
    killed = args.dir / "killed"
    done = 0
    try:
        # The victim's node gives up long before.
        while time.monotonic() < watchdog.fed + 150:
            # Waits on the processor, and raises what NCCL tells meanwhile.
            dist.all_reduce(data, async_op=True).wait()
            done += 1
            # One that was started before the kill may still end well.
            if killed.exists():
                watchdog.limit = args.limit + 30
                watchdog.feed("an error after a rank was killed")
        raise AssertionError("nobody was killed")
    except Exception as error:
        told = time.monotonic()
        text = f"{type(error).__name__}: {error}"
    if not wait_for(killed, 5):
        say(f"FAILED rank {rank} before anybody was killed: {text}")
        die(1)
    # The machine's clock is the same for all processes.
    seconds = told - float(killed.read_text())
    good = seconds <= args.limit
    say(f"rank {rank}: error {seconds:.2f} s after the kill, {done} all-reduces before: {text[:600]}")
    abort_seconds = abort(args, watchdog, dist, device)
    row = {"part": "kill", "rank": rank, "victim": args.victim, "nodes": world, "seconds": round(seconds, 3),
           "limit_seconds": args.limit, "good": good,
           "abort_seconds": abort_seconds, "error": text[:1000]}
    put(args.dir / f"told{rank}", json.dumps(row))
    # A rank that does not talk to the victim learns it from the aborts of those that do, and only after this from their end.
    for other in [other for other in range(world) if other != args.victim]:
        wait_for(args.dir / f"told{other}", LINGER - (time.monotonic() - told))
    # The communicator is broken: no orderly way out.
    die(0 if good else 1)


def stand_in(args, world):
    """The victim's node: starts the rank, kills it when all are in the loop, waits for the others to be told."""
    child = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, CHILD: "1"})
    for rank in range(world):
        if not wait_for(args.dir / f"ready{rank}", 150):
            say(f"FAILED: rank {rank} did not begin")
            child.kill()
            return 1
    time.sleep(1)
    if child.poll() is not None:
        say("FAILED: the victim ended by itself")
        return 1
    child.send_signal(signal.SIGKILL)
    put(args.dir / "killed", repr(time.monotonic()))
    child.wait()
    status = 0
    deadline = time.monotonic() + args.limit
    for rank in [rank for rank in range(world) if rank != args.victim]:
        if not wait_for(args.dir / f"told{rank}", deadline + 2 - time.monotonic()):
            say(f"FAILED: rank {rank} has no error {args.limit:.0f} s after the kill of rank {args.victim}")
            status = 1
            continue
        row = json.loads((args.dir / f"told{rank}").read_text())
        status = status or (0 if row["good"] else 1)
        if args.out:
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
    return status


def main():
    """See the top of the file."""
    args = arguments()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if not 0 < args.victim < world:
        sys.exit("--victim must be a rank other than 0")
    if rank == args.victim and CHILD not in os.environ:
        return stand_in(args, world)
    try:
        work(args, rank, world)
    except Exception:
        say(f"FAILED rank {rank}:\n{traceback.format_exc()}")
        die(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
