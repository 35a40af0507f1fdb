"""Compares two networks that took turns: the ratio of each round, and what its median and middle half are.

    python3 duel.py RESULTS.jsonl... [--nets Mesh,IB]
Reads rows that matrix.py wrote with variants `NAME, round N`. Needs neither PyTorch nor a GPU.
"""

import argparse
import collections
import statistics

from table import read, size_text


def rounds(rows, nets):
    """{(name, configuration, operation, size): {round: {network: time}}} of rounds that both networks completed."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in rows:
        name, _, number = row.get("variant", "").partition(", round ")
        if number and row.get("net") in nets and row.get("time_us"):
            key = (name, row.get("config", ""), row["op"], row["size_bytes"])
            found[key][int(number)][row["net"]] = row["time_us"]
    whole = {key: {n: times for n, times in by.items() if len(times) == len(nets)} for key, by in found.items()}
    return {key: by for key, by in whole.items() if by}


def summary(by_round, nets):
    """Medians of both times, and quartiles of the rounds' own ratios, first network by second."""
    ratios = sorted(times[nets[0]] / times[nets[1]] for times in by_round.values())
    medians = [statistics.median(times[net] for times in by_round.values()) for net in nets]
    quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
    return medians, quartiles, ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+")
    parser.add_argument("--nets", default="Mesh,IB", help="two networks; the ratio is first by second")
    args = parser.parse_args()
    nets = args.nets.split(",")
    rows = read([(name, open(name, encoding="utf-8").read()) for name in args.results])
    print(f"| operation | size | rounds | {nets[0]} µs | {nets[1]} µs | ratio, median | middle half | all rounds |")
    print("|---|---:|---:|---:|---:|---:|---|---|")
    for (_, config, op, size), by_round in sorted(rounds(rows, nets).items()):
        medians, quartiles, ratios = summary(by_round, nets)
        times = " | ".join(f"{median:,.1f}" for median in medians)
        middle = f"{quartiles[0]:.3f} to {quartiles[2]:.3f}"
        every = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"| {op} {config} | {size_text(size)} | {len(ratios)} | {times} | {quartiles[1]:.3f} | {middle} | {every} |")


if __name__ == "__main__":
    main()
