"""Checks the counters that `nccl-mesh sim run --json` prints for the nodes of a run.

    python3 counters.py [--relayed] NODES.jsonl
With --relayed, payload must have gone through relays, and other nodes must have passed it on.
"""

import argparse
import json
import sys


def problems(rows, relayed):
    """What is wrong, one line a cause."""
    lines = []
    if not rows:
        return ["there are no counters"]
    for row in rows:
        if row["exit_status"] != 0:
            lines.append(f"{row['node']}: exit status {row['exit_status']}")
        if row["direct_bytes"] is None:
            lines.append(f"{row['node']}: no counters: the plugin was not used")
    total = {name: sum(row[name] or 0 for row in rows) for name in ("direct_bytes", "relayed_bytes", "forwarded_bytes")}
    if total["direct_bytes"] == 0:
        lines.append("no byte went over a direct path")
    if relayed and total["relayed_bytes"] == 0:
        lines.append("no byte went over a relay")
    if relayed and total["forwarded_bytes"] == 0:
        lines.append("no node forwarded a byte")
    return lines


def main():
    """Prints sums and what is wrong; exit status 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relayed", action="store_true")
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip()]
    for row in rows:
        print(f"{row['node']}: direct {row['direct_bytes']} relayed {row['relayed_bytes']} "
              f"forwarded {row['forwarded_bytes']}")
    found = problems(rows, args.relayed)
    for line in found:
        print(f"PROBLEM: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
