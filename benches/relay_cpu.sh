#!/usr/bin/env bash
# A relay's own processor time a chunk: perf samples the relay thread of a stream of 8 KiB over one relay that spins, and those in the
# plugin's library (not in the emulated NIC, the kernel or libc) are divided by the chunks that passed. Looks that found nothing count.
#
#   cargo build --release && cargo run --release -p mesh-soft-verbs --example build -- target/release/soft-verbs
#   benches/relay_cpu.sh [TIMES]
#
# Needs perf and cores enough for two ends and a relay. PERF [perf] and BIN [target/release] say where things are.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(cd "${BIN:-target/release}" && pwd)
perf=${PERF:-perf}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The thread that relays, in the process of the node in the middle.
relay_thread() {
  local pid task
  for pid in $(pgrep -f "$bin/nccl-mesh"); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx 'NCCL_MESH_NODE=node1' || continue
    for task in "/proc/$pid/task/"*; do
      [[ $(cat "$task/comm" 2>/dev/null) != mesh-relay ]] || basename "$task"
    done
  done | sort -u | head -n 1
}

for ((time = 1; time <= ${1:-3}; time++)); do
  "$bin/nccl-mesh" bench --link verbs --relays 1 --sizes 8K --depth 8 --seconds 6 --rounds 100 --json --env NCCL_MESH_SPIN_US=50 \
    >"$work/rows" 2>"$work/log" &
  sleep 2
  thread=$(relay_thread)
  [[ -n $thread ]] || { echo "no relay thread: $(cat "$work/log")" >&2; exit 1; }
  $perf record -q -F 5000 -t "$thread" -o "$work/samples" sleep 3
  wait
  share=$($perf report -i "$work/samples" --no-children --sort dso --stdio 2>/dev/null | sed -n 's/^ *\([0-9.]*\)% *libnccl_net_mesh.so.*/\1/p')
  rate=$(sed -n 's/.*"what":"bandwidth".*"messages":\([0-9]*\),"seconds":\([0-9.]*\).*/\1 \2/p' "$work/rows")
  awk -v share="$share" -v rate="$rate" 'BEGIN {
    split(rate, r, " ")
    printf "%.2f us a chunk: %.1f %% of a core in the plugin at %.0f chunks a second\n", share * 1e4 * r[2] / r[1], share, r[1] / r[2]
  }'
done
