"""What ranks tell each other beside NCCL: decisions of rank 0, results of steps, and the watchdog.

Over PyTorch's TCP store only, so that nothing here is disturbed by what is tested. Runs on each rank's main thread; the watchdog
is faulthandler's own thread, which needs no lock of Python's and so also ends a rank that hangs inside the driver.
"""

import faulthandler
import json
import os
import statistics
import sys
import threading
import time


class Watchdog:
    """Ends the process with all stacks on standard error when nothing has moved for `limit` seconds."""

    def __init__(self, limit):
        self.limit, self.what, self.fed = limit, "", None
        # Names what hangs a moment before the stacks come, if Python still runs.
        threading.Thread(target=self._name, daemon=True).start()

    def _name(self):
        while True:
            time.sleep(0.5)
            if self.fed and time.monotonic() > self.fed + self.limit - 1:
                say(f"STALLED rank {os.environ.get('RANK')} for {self.limit:.0f} s in: {self.what}")
                self.fed = None

    def feed(self, what):
        """Something has moved; `what` comes next, and is named first if it hangs."""
        self.what, self.fed = what, time.monotonic()
        faulthandler.dump_traceback_later(self.limit, exit=True)

    def stop(self):
        """From now on nothing is expected to move."""
        self.fed = None
        faulthandler.cancel_dump_traceback_later()


class Control:
    """The store, seen as a sequence of steps that all ranks take in the same order."""

    def __init__(self, store, rank, world, budget, out, common):
        self.store, self.rank, self.world, self.out, self.common = store, rank, world, out, common
        self.started = time.monotonic()
        self.budget = budget
        self.index = 0
        self.checked = self.wrong = self.steps = 0
        self.skipped = {}
        self.mismatches = []

    def elapsed(self):
        """Seconds since the start."""
        return time.monotonic() - self.started

    def go(self, config):
        """Whether the next step is taken: rank 0 decides by its clock. Skipped steps are counted under `config`."""
        self.index += 1
        key = f"go/{self.index}"
        if self.rank == 0:
            self.store.set(key, "1" if not self.budget or self.elapsed() < self.budget else "0")
        taken = self.store.get(key) == b"1"
        if not taken:
            self.skipped[config] = self.skipped.get(config, 0) + 1
        return taken

    def finish(self, result):
        """Ends a step with this rank's result; on rank 0 returns all ranks' results in order, else None."""
        self.wrong += result["wrong_bytes"]
        key = f"result/{self.index}"
        if self.rank != 0:
            self.store.set(f"{key}/{self.rank}", json.dumps(result))
            return None
        return [result] + [json.loads(self.store.get(f"{key}/{rank}")) for rank in range(1, self.world)]

    def row(self, results, **fields):
        """Rank 0: writes the row of a step, made from all ranks' results."""
        times = [result["time_us"] for result in results if result["time_us"] is not None]
        checked = sum(result["checked_bytes"] for result in results)
        wrong = sum(result["wrong_bytes"] for result in results)
        self.checked += checked
        self.wrong += wrong - results[0]["wrong_bytes"]
        self.steps += 1
        # An operation is over when its slowest rank is.
        time_us = round(max(times), 2) if times else None
        self.write({**fields, "time_us": time_us, "checked_bytes": checked, "wrong_bytes": wrong, **self.common})

    def write(self, row):
        """Rank 0: appends a row to the results."""
        if self.out:
            self.out.write(json.dumps(row) + "\n")
            self.out.flush()

    def meet(self, name):
        """Waits until all ranks are here."""
        self.store.set(f"meet/{name}/{self.rank}", "1")
        for rank in range(self.world):
            self.store.get(f"meet/{name}/{rank}")


def median(times):
    """The median, or None of nothing."""
    return statistics.median(times) if times else None


def say(text):
    """One line on standard error, whole."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def die(status):
    """Ends at once: a communicator in error may hang the orderly way out."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
