#!/usr/bin/env bash
# Runs NCCL on one GPU over a make-believe ring of cables, a process a node, and checks results, logs and counters.
#
#   BIN=folder tests/gpu/run.sh --part mesh4 [--part mesh6 ...]
#
# Parts: mesh4 mesh6 (all configurations on a ring), switch4 (on a switch), socket4 socket6 (the same operations over NCCL's
# sockets), pair (two nodes, both networks), variants (connections at init, small buffers, split communicators), kill (a rank
# dies). With LINK=verbs also ib4 (NCCL's own IB on a switch), ib-ring (which must fail there), figures (Mesh, IB and sockets in turn
# on a switch of four; Mesh on a ring of four with everything default and with Ring forced; ROUNDS times [3]), duel (Mesh and IB
# alone, 8 KiB and 64 MiB with Ring, each rank on cores of its own; ROUNDS times), subnet (the same on a ring of four, with NCCL's
# subnet-aware routing, which 2.30.7 and later have: NCCL_LIB names such a libnccl.so.2).
# LINK [tcp] is what links are made of; verbs needs BIN/soft-verbs/libibverbs.so.1 (docs/soft-verbs.md).
# NCCL_LIB: a libnccl.so.2 that takes the place of PyTorch's own. FABRIC: more options of `sim run`, as words, such as "--speed 10G --soft-verbs-set engine=clock".
# BIN holds nccl-mesh, libnccl_net_mesh.so and libmesh_fabric.so [target/release]. PYTHON [python3] has PyTorch. Results go to
# $OUT [./gpu-results]. BUDGET scales all time budgets in percent [100]. NO_MPS=1 leaves MPS alone. BACKEND=gloo needs no GPU and
# tests these scripts. Exit status 0 only if every part was right. Every part is run, whatever became of those before.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$(cd "${BIN:-$here/../../target/release}" 2>/dev/null && pwd) || { echo "BIN=${BIN:-} is no folder" >&2; exit 2; }
python=${PYTHON:-python3}
out=${OUT:-./gpu-results}
backend=${BACKEND:-nccl}
link=${LINK:-tcp}
rounds=${ROUNDS:-3}
[[ -z ${NCCL_LIB:-} ]] || export LD_PRELOAD=$NCCL_LIB
read -ra fabric <<<"${FABRIC:-}"
percent=${BUDGET:-100}
parts=()
while (($#)); do
  case $1 in
    --part) parts+=("${2:?--part needs a name}"); shift 2 ;;
    *) echo "unknown argument $1; see the top of $0" >&2; exit 2 ;;
  esac
done
((${#parts[@]})) || { echo "nothing to do: name a --part; see the top of $0" >&2; exit 2; }
for file in nccl-mesh libnccl_net_mesh.so libmesh_fabric.so; do
  [[ -e $bin/$file ]] || { echo "$bin/$file is missing: build it or set BIN" >&2; exit 2; }
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
log=$out/run.log
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Only what this script sets may reach NCCL.
unset NCCL_ALGO NCCL_PROTO NCCL_NET NCCL_NET_PLUGIN NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_DEBUG_FILE

# An own folder for MPS: neither a daemon of others is used nor one left behind.
mkdir -p "$work/mps" "$work/mps-log" "$work/no-mps"
mps=0
stop_mps() {
  ((mps)) || return 0
  mps=0
  echo quit | CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps-log timeout 20 nvidia-cuda-mps-control || true
}
start_mps() {
  [[ $backend == nccl && -z ${NO_MPS:-} ]] || return 0
  if CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps-log nvidia-cuda-mps-control -d; then
    mps=1
  else
    say "MPS does not start: contexts are time-sliced, times mean little"
  fi
}
cleanup() {
  stop_mps
  [[ -n $work && -d $work ]] && rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { echo "== $*" | tee -a "$log" >&2; }
failed=()
fail() { say "FAILED $*"; failed+=("$*"); }
budget() { echo $(($1 * percent / 100)); }

# sim NAME SHAPE|FILE.toml NODES SECONDS [OPTIONS OF SIM RUN]... -- COMMAND...: runs it, keeps counters and output.
sim() {
  local name=$1 shape=$2 nodes=$3 seconds=$4 status=0 pipe=$work/no-mps
  shift 4
  ((mps)) && pipe=$work/mps
  local where=(--shape "$shape" --nodes "$nodes")
  [[ $shape != *.toml ]] || where=(--topology "$shape")
  say "$name: $nodes nodes, at most $seconds s"
  CUDA_MPS_PIPE_DIRECTORY=$pipe CUDA_MPS_LOG_DIRECTORY=$work/mps-log MESH_GPU_MPS=$mps \
    "$bin/nccl-mesh" sim run "${where[@]}" --timeout "$seconds" --json ${fabric[@]+"${fabric[@]}"} "$@" \
    >"$work/$name.nodes" 2> >(tee -a "$log" >&2) || status=$?
  sed "s/^{/{\"run\":\"$name\",/" "$work/$name.nodes" >>"$out/nodes.jsonl"
  ((status == 0)) || fail "$name: exit status $status"
}

# matrix NAME SHAPE NODES SECONDS NET VARIANT [--env ...]... -- [OPTIONS OF matrix.py]
matrix() {
  local name=$1 shape=$2 nodes=$3 seconds net=$5 variant=$6 options=()
  seconds=$(budget "$4")
  shift 6
  while [[ $1 != -- ]]; do options+=("$1"); shift; done
  shift
  case $net in
    Socket) options+=(--no-plugin --env NCCL_NET=Socket) ;;
    # Devices of soft verbs are of no vendor that NCCL knows; a refused queue pair is to fail at once.
    IB) options+=(--no-plugin --env NCCL_NET=IB --env NCCL_IB_GID_INDEX=3 --env NCCL_IB_MERGE_NICS=0 --env NCCL_GIN_TYPE=0
      --env NCCL_IB_MQP_RETRY_CNT=1) ;;
  esac
  [[ $net == Socket ]] || options+=(--link "$link")
  local logs=$work/logs/$name
  # Start-up, the step that runs when time is up, and the end come on top.
  sim "$name" "$shape" "$nodes" $((seconds + 120)) ${options[@]+"${options[@]}"} -- \
    "$python" "$here/matrix.py" --backend "$backend" --net "$net" --variant "$variant" --time-budget "$seconds" \
    --out "$out/results.jsonl" --log-dir "$logs" "$@"
  [[ $backend == nccl ]] || return 0
  "$python" "$here/nccl_log.py" --net "$net" "$logs" >"$work/check" || fail "$name: NCCL's logs"
  tee -a "$log" <"$work/check" >&2
  if [[ $net == Mesh ]]; then
    local relayed=()
    [[ $shape != ring || $nodes -lt 4 || " $* " == *" --only ring "* ]] || relayed=(--relayed)
    "$python" "$here/counters.py" ${relayed[@]+"${relayed[@]}"} "$work/$name.nodes" >"$work/check" || fail "$name: counters"
    tee -a "$log" <"$work/check" >&2
  fi
}

# Figures: few operations, many repetitions.
race=(--no-scenarios --ops all_reduce --sizes 8,1K,8K,1M,64M --times 10)

ib_ring() {
  local status=0 logs=$work/logs/ib-ring
  CUDA_MPS_PIPE_DIRECTORY=$work/mps "$bin/nccl-mesh" sim run --link verbs --shape ring --nodes 6 --timeout 120 --no-plugin \
    --env NCCL_NET=IB --env NCCL_IB_GID_INDEX=3 --env NCCL_IB_MERGE_NICS=0 --env NCCL_GIN_TYPE=0 --env NCCL_IB_MQP_RETRY_CNT=1 -- \
    "$python" "$here/matrix.py" --net IB --only tree+pat --ops all_reduce --sizes 8K --no-scenarios --stall 30 --log-dir "$logs" \
    >"$work/ib-ring.out" 2>&1 || status=$?
  grep -h -m 2 'modify_qp.*110' "$logs"/* "$work/ib-ring.out" | sort | uniq -c | tee -a "$log" >&2
  ((status != 0)) && grep -q 'modify_qp.*110' "$logs"/* "$work/ib-ring.out" || fail "ib-ring: status $status, no error 110"
}

yard=(--only default --no-scenarios --ops all_reduce,all_to_all,send_recv,ping_pong --sizes 1K,8K,1M,64M)

kill_part() {
  # Without MPS: its server does not survive the loss of a client in the middle of a kernel.
  stop_mps
  mkdir "$work/kill"
  sim kill ring 4 240 --link "$link" -- "$python" "$here/kill.py" --backend "$backend" --dir "$work/kill" --out "$out/results.jsonl" \
    --log-dir "$work/logs/kill"
  grep -h -o 'mesh\[E.*' "$work"/logs/kill/*.log 2>/dev/null | sort | uniq -c | sort -rn | head -20 | tee -a "$log" >&2
  start_mps
}

start_mps
for part in "${parts[@]}"; do
  begin=$SECONDS
  case $part in
    mesh4) matrix mesh4 ring 4 150 Mesh "" -- ;;
    mesh6) matrix mesh6 ring 6 220 Mesh "" -- ;;
    socket4) matrix socket4 ring 4 60 Socket "" -- "${yard[@]}" ;;
    socket6) matrix socket6 ring 6 90 Socket "" -- "${yard[@]}" ;;
    pair)
      matrix pair-mesh line 2 40 Mesh "" -- "${yard[@]}"
      matrix pair-socket line 2 40 Socket "" -- "${yard[@]}"
      ;;
    variants)
      matrix eager ring 4 40 Mesh runtime-connect-0 --env NCCL_RUNTIME_CONNECT=0 -- --quick --only default --no-scenarios
      matrix small ring 4 40 Mesh buffsize-64K-unshared --env NCCL_BUFFSIZE=65536 --env NCCL_NET_SHARED_BUFFERS=0 -- \
        --quick --no-scenarios
      matrix split ring 4 40 Mesh split -- --quick --only default --split
      ;;
    switch4) matrix switch4 switch 4 150 Mesh "" -- ;;
    ib4) matrix ib4 switch 4 60 IB "" -- "${yard[@]}" ;;
    ib-ring) ib_ring ;;
    figures)
      for ((round = 1; round <= rounds; round++)); do
        # Each network comes first, second and third in turn; within a run, what comes first warms up for what comes next.
        nets=(Mesh IB Socket Mesh IB Socket)
        for net in "${nets[@]:round % 3:3}"; do
          matrix "figures-$net-$round" switch 4 60 "$net" "switch, round $round" -- "${race[@]}" --only default,ring
        done
        matrix "figures-ring-$round" ring 4 60 Mesh "ring, round $round" -- "${race[@]}" --only default,ring
      done
      ;;
    duel)
      # Two sizes, Ring, each rank on cores of its own: rounds differ less, so that a few hundredths can be told.
      for ((round = 1; round <= rounds; round++)); do
        nets=(Mesh IB Mesh)
        for net in "${nets[@]:round % 2:2}"; do
          matrix "duel-$net-$round" switch 4 60 "$net" "duel, round $round" -- \
            --no-scenarios --ops all_reduce --sizes 8K,64M --times 40 --only ring --share-cores
        done
      done
      ;;
    subnet)
      # Ring alone, ranks in the order of the cables: the only way that IB goes there.
      for ((round = 1; round <= rounds; round++)); do
        nets=(Mesh IB Mesh)
        for net in "${nets[@]:round % 2:2}"; do
          matrix "subnet-$net-$round" "$here/rotation.toml" 4 60 "$net" "subnet, round $round" --env NCCL_IB_SUBNET_AWARE_ROUTING=1 \
            --env NCCL_IB_SUBNET_PREFIX_LEN=30 -- --no-scenarios --ops all_reduce --sizes 8K,64M --times 40 --only ring --share-cores
        done
      done
      ;;
    kill) kill_part ;;
    *) fail "$part: no such part" ;;
  esac
  say "$part took $((SECONDS - begin)) s"
done

if [[ -d $work/logs ]]; then
  # The first logs are the most useful ones; a whole set may be too large to carry away.
  tar -C "$work" -czf "$out/nccl-logs.tar.gz" logs
  size=$(stat -c %s "$out/nccl-logs.tar.gz")
  ((size < 12 << 20)) || { rm "$out/nccl-logs.tar.gz"; say "NCCL's logs are $size bytes packed: not kept"; }
fi
if ((${#failed[@]})); then
  say "${#failed[@]} failures:"
  for line in "${failed[@]}"; do say "  $line"; done
  exit 1
fi
say "all parts right"
