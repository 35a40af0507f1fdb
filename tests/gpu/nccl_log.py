"""Reads NCCL's logs: which network each channel uses, which algorithm an operation, what the plugin says of itself.

Pure text; needs neither PyTorch nor a GPU. As a program it checks the logs of a run:
    python3 nccl_log.py --net Mesh FOLDER [MORE_FILES...]
"""

import argparse
import pathlib
import re
import sys

CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] \[(send|receive)\] via (\S+)")
# Intra-node channels have no direction; none may exist with one rank a node.
INNER = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] via (\S+)")
CHOSEN = re.compile(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)")
BANNER = re.compile(r"mesh\[I01\] nccl-mesh (\S+) (\S+) abi (v\d+)")
SET = re.compile(r"(NCCL_ALGO|NCCL_PROTO) set by environment to (\S+)")
TROUBLE = re.compile(r"mesh\[[EW]\d+\].*|NCCL WARN.*")


class Tail:
    """A log that grows: gives what was added since the last time."""

    def __init__(self, path):
        self.path, self.offset = path, 0

    def new(self):
        """The text added since the last call; empty if there is no log."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return ""
        self.offset += len(data)
        return data.decode(errors="replace")


def chosen(text):
    """Function to the set of 'ALGO/PROTO' that NCCL chose for it in this text."""
    found = {}
    for function, _size, algo, proto in CHOSEN.findall(text):
        found.setdefault(function, set()).add(f"{algo.upper()}/{proto.upper()}")
    return found


def unexpected(found, expect):
    """Lines for what was chosen against a configuration's expectation."""
    lines = []
    for function, (algo, proto) in expect.items():
        for pair in sorted(found.get(function, ())):
            got_algo, got_proto = pair.split("/")
            if got_algo != algo or (proto and got_proto != proto):
                lines.append(f"{function}: NCCL used {pair}, not {algo}/{proto or 'any'}")
    return lines


def summarise(text, net):
    """Counts of a log: channels via the network `net`, all others, and what the plugin and NCCL complained of."""
    others, right = {}, 0
    for sender, receiver, direction, via in CHANNEL.findall(text):
        if re.match(rf"NET/{re.escape(net)}/\d", via):
            right += 1
        else:
            others.setdefault(via, f"{sender} -> {receiver} [{direction}]")
    for sender, receiver, via in INNER.findall(text):
        others.setdefault(via, f"{sender} -> {receiver}")
    banner = BANNER.search(text)
    return {
        "channels": right,
        "others": others,
        "banner": banner.group(0) if banner else None,
        "plugin": banner.group(1) if banner else None,
        "settings": sorted({f"{name}={value}" for name, value in SET.findall(text)}),
        "trouble": TROUBLE.findall(text),
    }


def problems(summaries, net):
    """What is wrong with the logs of a run, one line a cause; `summaries` by name of the log."""
    lines = []
    if not summaries:
        lines.append("there are no logs of NCCL")
    for name, summary in summaries.items():
        if not summary["channels"]:
            lines.append(f"{name}: no channel via NET/{net}")
        for via, which in summary["others"].items():
            lines.append(f"{name}: channel {which} goes via {via}, not NET/{net}")
        if net == "Mesh" and not summary["banner"]:
            lines.append(f"{name}: the plugin's banner is missing")
    return lines


def main():
    """Prints a summary; exit status 1 if a channel of any log uses another network or the plugin's banner is missing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--net", default="Mesh")
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    logs = sorted(args.folder.glob("rank*.log"))
    summaries = {log.name: summarise(log.read_text(errors="replace"), args.net) for log in logs}
    for name, summary in summaries.items():
        print(f"{name}: {summary['channels']} channels via NET/{args.net}; {summary['banner'] or 'no banner'}")
        if name == "rank0.log":
            print(f"{name}: {', '.join(summary['settings']) or 'no algorithm or protocol set'}")
        for line in list(dict.fromkeys(summary["trouble"]))[:8]:
            print(f"{name}: {line[:400]}")
    found = problems(summaries, args.net)
    for line in found:
        print(f"PROBLEM: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
