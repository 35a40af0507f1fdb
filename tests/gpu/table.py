"""Turns results of matrix.py and kill.py into Markdown: one table a number of nodes, rows by operation and size.

    python3 table.py RESULTS.jsonl... > table.md
Needs neither PyTorch nor a GPU. Results of several runs may be given together; of equal rows the last counts (of set-ups
the first), wrong bytes are added up. Times are the slowest rank's median in microseconds.
"""

import json
import sys

# Configurations that have a column of their own; forced protocols follow in a table of their own.
COLUMNS = ["default", "tree", "ring", "pat", "tree+pat"]
ORDER = [
    "set_up", "barrier", "all_reduce", "all_reduce_i64", "all_reduce_bf16", "all_gather", "reduce_scatter", "broadcast",
    "reduce", "all_to_all", "send_recv", "ping_pong", "two_communicators", "graph",
]


def read(texts):
    """Rows of JSON lines; lines that are no objects are named in the error."""
    rows = []
    for name, text in texts:
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{name}:{number}: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{name}:{number}: not an object")
            rows.append(row)
    return rows


def size_text(size):
    """A size as people write it; exact."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def time_text(time_us):
    """A time to three digits, in microseconds up to 10 ms."""
    if time_us is None:
        return ""
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.1f}"


def operation(row):
    """The operation in words."""
    words = row["op"].replace("_", "-")
    if row.get("root") is not None:
        words += f", root {row['root']}"
    if row.get("distance"):
        words += f", distance {row['distance']}"
    if row.get("group"):
        words += f", ranks {row['group']}"
    return words


def key(row):
    """Sorts rows: by operation, its details, size."""
    at = ORDER.index(row["op"]) if row["op"] in ORDER else len(ORDER)
    detail = (row.get("group") or "", row.get("root") or 0, row.get("distance") or 0)
    return (at, row["op"], *detail, row["size_bytes"])


def markdown(head, lines):
    """A table; columns without any entry are left out, the first two stay."""
    keep = [n for n in range(len(head)) if n < 2 or any(line[n] for line in lines)]
    rule = ["---", "---:"] + ["---:"] * (len(head) - 2)
    rows = [head, rule, *lines]
    return "\n".join("| " + " | ".join(row[n] for n in keep) + " |" for row in rows)


def times(rows):
    """Times by (operation and size key) and column, and how each row is called."""
    found, named = {}, {}
    for row in rows:
        place = key(row)
        named[place] = (operation(row), size_text(row["size_bytes"]))
        column = "Socket" if row["net"] == "Socket" else row["config"]
        columns = found.setdefault(place, {})
        # The first set-up starts NCCL and its transport; later ones in the same processes are not comparable with it.
        if not (row["op"] == "set_up" and column in columns):
            columns[column] = row["time_us"]
    return found, named


def main_table(rows):
    """Mesh by configuration, Socket, and how many times Socket's time Mesh's default takes."""
    found, named = times(rows)
    head = ["operation", "size"] + [f"Mesh {name}" for name in COLUMNS] + ["Socket", "Mesh / Socket"]
    lines = []
    for place in sorted(found):
        columns = found[place]
        if not any(columns.get(name) is not None for name in [*COLUMNS, "Socket"]):
            continue
        mesh, socket = columns.get("default"), columns.get("Socket")
        ratio = f"{mesh / socket:.2f}" if mesh and socket else ""
        lines.append([*named[place], *[time_text(columns.get(name)) for name in COLUMNS], time_text(socket), ratio])
    return markdown(head, lines) if lines else ""


def protocol_table(rows):
    """Forced protocols."""
    forced = sorted({row["config"] for row in rows if row["config"] not in COLUMNS}, reverse=True)
    rows = [row for row in rows if row["config"] in forced and row["op"] != "set_up"]
    found, named = times(rows)
    lines = [[*named[place], *[time_text(found[place].get(name)) for name in forced]] for place in sorted(found)]
    return markdown(["operation", "size", *forced], lines) if lines else ""


def versions(rows):
    """One line a run: what it ran on."""
    lines = []
    for row in rows:
        if row.get("meta"):
            parts = [f"{row['nodes']} nodes", row["net"], row.get("variant") or "", f"plugin {row.get('plugin') or '-'}",
                     f"NCCL {row['nccl']}", f"PyTorch {row['torch']}", f"CUDA {row.get('cuda')}",
                     f"driver {row.get('driver')}", str(row.get("gpu")), f"MPS {'on' if row.get('mps') == '1' else 'off'}"]
            line = "- " + ", ".join(part for part in parts if part)
            if line not in lines:
                lines.append(line)
    return "\n".join(lines)


def chosen_text(rows):
    """Which algorithms and protocols NCCL's log named in each configuration."""
    by_config = {}
    for row in rows:
        if row.get("chosen") and row["net"] != "Socket":
            by_config.setdefault(row["config"], set()).update(row["chosen"].split(","))
    return "\n".join(f"- {name}: {', '.join(sorted(used))}" for name, used in sorted(by_config.items()))


def document(rows):
    """The whole text."""
    runs = [row for row in rows if "config" in row]
    checked = sum(row["checked_bytes"] for row in runs)
    wrong = sum(row["wrong_bytes"] for row in runs)
    parts = ["## Runs", versions(rows), f"{len(runs)} steps, {checked} bytes checked, {wrong} wrong. Times in microseconds."]
    plain = [row for row in runs if not row.get("variant")]
    for nodes in sorted({row["nodes"] for row in plain}):
        here = [row for row in plain if row["nodes"] == nodes]
        mesh = [row for row in here if row["net"] != "Socket"]
        parts += [f"## {nodes} nodes", main_table(here)]
        protocols = protocol_table(mesh)
        if protocols:
            parts += [f"### {nodes} nodes, forced protocols", protocols]
        used = chosen_text(mesh)
        if used:
            parts += [f"### {nodes} nodes, what NCCL chose", used]
    variants = {}
    for row in runs:
        if row.get("variant"):
            seen = variants.setdefault((row["variant"], row["nodes"]), [0, 0, 0])
            seen[0], seen[1], seen[2] = seen[0] + 1, seen[1] + row["checked_bytes"], seen[2] + row["wrong_bytes"]
    if variants:
        lines = [[name, str(nodes), *map(str, seen)] for (name, nodes), seen in sorted(variants.items())]
        parts += ["## Variants", markdown(["variant", "nodes", "steps", "bytes checked", "wrong"], lines)]
    kills = [row for row in rows if row.get("part") == "kill"]
    if kills:
        lines = [[str(row["rank"]), str(row["victim"]), f"{row['seconds']:.2f}", str(row.get("abort_seconds", "")),
                  row["error"].splitlines()[0][:120].replace("|", "/")]
                 for row in sorted(kills, key=lambda row: row["rank"])]
        parts += ["## A rank is killed", markdown(["rank", "killed", "seconds until told", "seconds to abort", "error"], lines)]
    return "\n\n".join(part for part in parts if part) + "\n"


def main(paths):
    """See the top of the file."""
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append((path, file.read()))
    sys.stdout.write(document(read(texts)))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
