"""Runs NCCL's operations through whatever network the environment names, in many configurations, and checks every byte.

Started once a node with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, all on the first GPU. One set of processes runs all
configurations: NCCL reads NCCL_ALGO and NCCL_PROTO whenever a communicator is made. Exit status: 0 all right, 1 wrong results or
an error, 4 (with --strict) steps were skipped for want of time or NCCL used another algorithm than asked for.
"""

import argparse
import datetime
import gc
import os
import pathlib
import subprocess
import sys
import time
import traceback

import plan
from control import Control, Watchdog, die, say
from nccl_log import Tail, chosen, summarise, unexpected

# Configurations that are run before the scenarios.
FIRST = 2
# Part of the time budget that is kept for CUDA graphs.
GRAPH_SHARE = 0.1


def arguments(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few configurations, sizes up to 1 MiB")
    parser.add_argument("--only", metavar="CONFIG", help="these configurations, with commas")
    parser.add_argument("--sizes", help="bytes, with commas and K, M, G")
    parser.add_argument("--ops", help="these operations, with commas")
    parser.add_argument("--no-scenarios", action="store_true", help="no sub-groups, pairs of communicators, graphs")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="N times the usual timed iterations")
    parser.add_argument("--time-budget", type=float, default=0, metavar="SECONDS", help="skip what is left then")
    parser.add_argument("--strict", action="store_true", help="skipped steps and unexpected algorithms are failures")
    parser.add_argument("--split", action="store_true", help="make communicators by splitting the first one")
    parser.add_argument("--share-cores", action="store_true", help="each rank on an equal share of the cores, no two on one")
    parser.add_argument("--stall", type=float, default=60, metavar="SECONDS", help="end when nothing moves so long")
    parser.add_argument("--out", type=pathlib.Path, help="append results as JSON lines")
    parser.add_argument("--log-dir", type=pathlib.Path, help="NCCL's logs, a file a rank")
    parser.add_argument("--net", default=os.environ.get("NCCL_NET", ""), help="name of the network in results")
    parser.add_argument("--variant", default="", help="name of the run in results")
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"], help="gloo: on the CPU, tests this program")
    args = parser.parse_args(argv)
    args.configs = [config for config in plan.CONFIGS if not args.quick or config.name in plan.QUICK]
    if args.only:
        args.configs = [config for config in plan.CONFIGS if config.name in args.only.split(",")]
        if len(args.configs) != len(args.only.split(",")):
            parser.error(f"--only: known are {', '.join(config.name for config in plan.CONFIGS)}")
    args.ops = args.ops.split(",") if args.ops else plan.ALL
    if not set(args.ops) <= set(plan.ALL):
        parser.error(f"--ops: known are {', '.join(plan.ALL)}")
    sizes = plan.QUICK_SIZES if args.quick else plan.SIZES
    args.sizes = [plan.parse_size(word) for word in args.sizes.split(",")] if args.sizes else sizes
    return args


def share_cores(rank, world):
    """Keeps ranks off each other's cores, as on machines of their own; threads that come later inherit it."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // world
    if share:
        os.sched_setaffinity(0, cores[rank * share : (rank + 1) * share])


def log_settings(args, rank):
    """NCCL's log of this rank; set before NCCL is loaded. Returns its path or None."""
    if not args.log_dir:
        return None
    args.log_dir.mkdir(parents=True, exist_ok=True)
    path = args.log_dir / f"rank{rank}.log"
    os.environ["NCCL_DEBUG"] = "INFO"
    # The choice of algorithms is the same on all ranks: one log is enough.
    os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,NET,ENV,TUNING" if rank == 0 else "INIT,NET,ENV"
    os.environ["NCCL_DEBUG_FILE"] = str(path)
    return path


class Matrix:
    """One rank's run."""

    def __init__(self, args, rank, world, log):
        import torch
        import torch.distributed as dist

        self.args, self.rank, self.world, self.torch, self.dist = args, rank, world, torch, dist
        self.tail = Tail(log) if log and rank == 0 else None
        self.watchdog = Watchdog(args.stall)
        self.salt = 0
        cuda = args.backend == "nccl"
        self.device = torch.device("cuda:0" if cuda else "cpu")
        # Processes start at different times.
        limit = datetime.timedelta(seconds=180)
        port = int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(os.environ["MASTER_ADDR"], port, world, is_master=rank == 0, timeout=limit)
        if cuda:
            torch.cuda.set_device(0)
            torch.zeros(1, device=self.device)
        nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda else args.backend
        common = {"nodes": world, "net": args.net, "variant": args.variant, "nccl": nccl, "torch": torch.__version__}
        out = args.out.open("a") if args.out and rank == 0 else None
        self.control = Control(dist.PrefixStore("matrix", store), rank, world, args.time_budget, out, common)
        # Without a device no communicator is made here, and groups make theirs from nothing instead of by a split.
        bound = {"device_id": self.device} if args.split else {}
        self.watchdog.feed("first communicator")
        dist.init_process_group(
            args.backend, store=dist.PrefixStore("pg", store), rank=rank, world_size=world, timeout=limit, **bound)
        self.control.meet("start")
        self.control.started = time.monotonic()

    def step(self, config, work, **fields):
        """One step that all ranks take: `work()` gives this rank's result, rank 0 writes the row."""
        what = f"{config.name} {fields['what']}"
        self.watchdog.feed(what)
        if not self.control.go(config.name):
            return False
        try:
            result = work()
        except Exception:
            say(f"FAILED rank {self.rank} config {config.name} {fields['what']}:\n{traceback.format_exc()}")
            die(1)
        if result["wrong_bytes"]:
            say(f"WRONG rank {self.rank} config {config.name} {fields['what']}: "
                f"{result['wrong_bytes']} of {result['checked_bytes']} bytes; first: {result['first']}")
        results = self.control.finish(result)
        if results:
            used = chosen(self.tail.new()) if self.tail else {}
            for line in unexpected(used, config.expect):
                self.control.mismatches.append(f"{config.name} {fields['what']}: {line}")
            fields.pop("what")
            pairs = sorted({pair for pairs in used.values() for pair in pairs})
            self.control.row(results, config=config.name, chosen=",".join(pairs) or None, **fields)
        return True

    def group(self, ranks):
        """A new communicator of some ranks, connected by a small all-reduce; and this rank's view of it."""
        from ops import Scene

        return Scene(self.dist.new_group(list(ranks)), ranks, self.rank, self.device)

    def drop(self, *scenes):
        """Destroys communicators."""
        for scene in scenes:
            scene.sync()
            if scene.at >= 0:
                self.dist.destroy_process_group(scene.group)
        gc.collect()

    def environment(self, config):
        """What NCCL reads when the next communicator is made."""
        for name, text in (("NCCL_ALGO", config.algo), ("NCCL_PROTO", config.proto)):
            os.environ.pop(name, None)
            if text:
                os.environ[name] = text

    def set_up(self, config, ranks, **fields):
        """A new communicator in a configuration; its first operation, with all that it connects, is a row."""
        import ops

        made = []

        def work():
            begin = time.monotonic()
            made.append(self.group(ranks))
            result = ops.run(made[0], plan.Case("all_reduce", 4), self.next_salt(), 0)
            result["time_us"] = (time.monotonic() - begin) * 1e6
            return result

        self.environment(config)
        taken = self.step(config, work, what=f"set-up of {list(ranks)}", op="set_up", size_bytes=4, **fields)
        return made[0] if taken else None

    def next_salt(self):
        """Content of every step differs; the same on all ranks."""
        self.salt += 1
        return self.salt

    def run_config(self, config):
        """All operations of a configuration."""
        import ops

        scene = self.set_up(config, range(self.world))
        if not scene:
            return
        wanted = [op for op in config.ops if op in self.args.ops]
        sizes = [size for size in self.args.sizes if size <= config.most]
        for case in plan.cases(wanted, sizes, self.world):
            salt = self.next_salt()
            extra = {"root": case.root} if case.root >= 0 else {"distance": case.distance} if case.distance else {}
            self.step(config, lambda case=case, salt=salt: ops.run(scene, case, salt, plan.iterations(case.size) * self.args.times),
                      what=f"{case.label()} {case.size} bytes", op=case.op, size_bytes=case.size, **extra)
        self.drop(scene)

    def run_subgroup(self, config, ranks):
        """Operations between some ranks only."""
        import ops

        named = ",".join(map(str, ranks))
        scene = self.set_up(config, ranks, group=named)
        if not scene:
            return
        for case in plan.cases(plan.SUBGROUP_OPS, plan.SUBGROUP_SIZES, len(ranks)):
            salt = self.next_salt()
            self.step(config, lambda case=case, salt=salt: ops.run(scene, case, salt, plan.iterations(case.size) * self.args.times),
                      what=f"{case.label()} {case.size} bytes in group {named}", op=case.op, size_bytes=case.size,
                      group=named)
        self.drop(scene)

    def run_scenarios(self):
        """Sub-groups and two communicators at once."""
        import scenarios

        config = plan.Config("default")
        for ranks in plan.SUBGROUPS:
            if max(ranks) < self.world:
                self.run_subgroup(config, ranks)
        everyone = range(self.world)
        first = self.set_up(config, everyone)
        second = self.set_up(config, everyone) if first else None
        if first and second:
            for size in (plan.KIB, plan.MIB):
                self.step(config, lambda size=size: scenarios.two_communicators(first, second, size, 5),
                          what=f"two communicators {size} bytes", op="two_communicators", size_bytes=size)
        self.drop(*[scene for scene in (second, first) if scene])

    def run_graph(self):
        """Operations recorded in a CUDA graph."""
        import scenarios

        config = plan.Config("default")
        scene = self.set_up(config, range(self.world))
        if scene:
            for size in (plan.KIB, plan.MIB):
                self.step(config, lambda size=size: scenarios.graph(scene, size, 5),
                          what=f"graph {size} bytes", op="graph", size_bytes=size)
            self.drop(scene)

    def meta(self):
        """Rank 0: versions of everything, as a row of its own."""
        query = ["nvidia-smi", "--query-gpu=driver_version,name", "--format=csv,noheader"]
        try:
            answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
            driver, gpu = [word.strip() for word in answer.splitlines()[0].split(",", 1)]
        except (OSError, subprocess.SubprocessError, ValueError, IndexError):
            driver = gpu = None
        log = self.tail.path.read_text(errors="replace") if self.tail and self.tail.path.exists() else ""
        self.control.write({
            "meta": True, "driver": driver, "gpu": gpu, "cuda": self.torch.version.cuda, "python": sys.version.split()[0],
            "plugin": summarise(log, self.args.net)["plugin"], "mps": os.environ.get("MESH_GPU_MPS"),
            "seconds": round(self.control.elapsed(), 1), **self.control.common,
        })

    def run(self):
        """Everything; returns the exit status."""
        control = self.control
        budget = control.budget
        if not self.args.no_scenarios:
            control.budget = budget * (1 - GRAPH_SHARE)
        # What matters most comes first, for time may run out.
        for config in self.args.configs[:FIRST]:
            self.run_config(config)
        if not self.args.no_scenarios:
            self.run_scenarios()
        for config in self.args.configs[FIRST:]:
            self.run_config(config)
        control.budget = budget
        # Last: a graph is the likeliest to leave a communicator that cannot be destroyed.
        if not self.args.no_scenarios:
            self.run_graph()
        self.watchdog.feed("end")
        control.meet("end")
        status = 1 if control.wrong else 0
        if control.skipped and self.rank == 0:
            words = [f"{name} ({count} steps)" for name, count in control.skipped.items()]
            say(f"SKIPPED after {control.elapsed():.0f} s: {', '.join(words)}")
        for line in control.mismatches[:20]:
            say(f"NOTE {line}")
        if self.args.strict and (control.skipped or control.mismatches):
            status = status or 4
        if self.rank == 0:
            self.meta()
            say(f"{control.steps} steps in {control.elapsed():.0f} s, {control.checked} bytes checked, "
                f"{control.wrong} wrong, {len(control.mismatches)} unexpected algorithms")
        self.dist.destroy_process_group()
        self.watchdog.stop()
        return status


def main():
    """See the top of the file."""
    args = arguments()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if args.share_cores:
        share_cores(rank, world)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    log = log_settings(args, rank)
    start = Watchdog(180)
    start.feed("start of PyTorch")
    try:
        matrix = Matrix(args, rank, world, log)
        start.fed = None
        return matrix.run()
    except Exception:
        say(f"FAILED rank {rank}:\n{traceback.format_exc()}")
        die(1)


if __name__ == "__main__":
    sys.exit(main())
