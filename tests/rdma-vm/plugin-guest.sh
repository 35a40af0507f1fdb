#!/bin/bash
# plugin-guest.sh - the part of plugin.sh that runs in the virtual machine, on whose ring (/etc/ring) it runs everything.
set -uo pipefail
failed=0 checked=0 relayed=0 rows=0
# An emulated machine that others keep busy may need more than the usual 5 s until a node says what it opened a leg for.
export NCCL_MESH_TIMEOUT_MS=30000
wrong() { echo "WRONG: $*"; failed=$((failed + 1)); }

# Devices by node, and the topology file: a link is two ports in one subnet.
declare -a devices=()
declare -A ports=() peer=()
while read -r _ i a x j b y; do
    devices+=("$a" "$b")
    peer[$a]=$b peer[$b]=$a
    ports[$i]+="{ device = \"$a\", address = \"$x/30\" }, "
    ports[$j]+="{ device = \"$b\", address = \"$y/30\" }, "
done </etc/ring
topology=/tmp/ring.toml
echo 'schema = 1' >$topology
for ((i = 0; i < RDMA_VM_NODES; i++)); do
    printf '[[node]]\nname = "node%d"\nport = [ %s ]\n' "$i" "${ports[$i]}" >>$topology
done

# ------------------------------------------------------------------ cables --
# Every two ports that share no cable, all at once, as each takes a second to be refused; then one cable, which must work. The side
# that listens is the first to turn its queue pair to the other's address.
pingpong() { ibv_rc_pingpong -d "$1" -g "$RDMA_VM_GID_INDEX" -n 2 -p "$2" "${@:3}" 2>&1; }
pairs=()
for a in "${devices[@]}"; do
    for b in "${devices[@]}"; do
        [[ $a < $b && ${peer[$a]} != "$b" ]] && pairs+=("$a $b")
    done
done
for n in "${!pairs[@]}"; do
    read -r a b <<<"${pairs[$n]}"
    pingpong "$a" $((20000 + n)) >"/tmp/server.$n" &
done
sleep 1
for n in "${!pairs[@]}"; do
    read -r a b <<<"${pairs[$n]}"
    pingpong "$b" $((20000 + n)) 127.0.0.1 >"/tmp/client.$n" &
done
wait
for n in "${!pairs[@]}"; do
    grep -q 'Failed to modify QP to RTR' "/tmp/server.$n" || wrong "${pairs[$n]}: no cable, and: $(tail -n 1 "/tmp/server.$n")"
done
a=${devices[0]} b=${peer[${devices[0]}]}
pingpong "$a" 20000 >/tmp/server & 
sleep 1
pingpong "$b" 20000 127.0.0.1 >/tmp/client || wrong "$a and $b share a cable, and: $(tail -n 1 /tmp/client)"
wait
# The plugin fares no better: told that all nodes' right ports, of which no two share a cable, are on one switch, it connects nobody.
{
    printf 'schema = 1\n[[switch]]\nsubnet = "10.77.0.0/16"\n'
    while read -r _ i a x _; do
        printf '[[node]]\nname = "node%d"\nport = [ { device = "%s", address = "%s/16" } ]\n' "$i" "$a" "$x"
    done </etc/ring
} >/tmp/false.toml
timeout 60 /share/nccl-mesh sim run --real-ports --topology /tmp/false.toml --link verbs --json \
    --collective all-to-all --sizes 4 --channels 1 >/tmp/rows 2>/tmp/refused &
refused='ibv_modify_qp to RTR failed .*os error 110'
# It tries again until its time is up; that it was refused once is enough.
while sleep 1 && kill -0 $! 2>/dev/null; do
    grep -q "$refused" /tmp/refused && kill $!
done
wait $! && wrong 'the plugin talks over cables that are not there'
[ ! -s /tmp/rows ] || wrong "rows over cables that are not there: $(head -n 1 /tmp/rows)"
grep -q "$refused" /tmp/refused || wrong "without cables the plugin says not that, but: $(tail -n 1 /tmp/refused)"
echo "ring of $RDMA_VM_NODES: ${#pairs[@]} pairs of ports without a cable, none can be connected, nor does the plugin; $SECONDS s"

# ------------------------------------------------------------- collectives --
counted() { # COUNTER: its sum over all RDMA devices
    local sum=0 one device
    for device in "${devices[@]}"; do
        read -r one <"/sys/class/infiniband/$device/ports/1/hw_counters/$1" && sum=$((sum + one))
    done
    echo $sum
}
total() { # FIELD: its sum over the rows in /tmp/rows
    local sum=0 one
    while read -r one; do sum=$((sum + one)); done < <(sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" /tmp/rows)
    echo $sum
}
# check RELAYS COLLECTIVE ALGO SIZES OPTION...; RELAYS: whether the routes need them, yes or no
check() {
    local relays=$1 what="$2 ($3)" began=$SECONDS status sent moved right passed count empty
    sent=$(counted sent_pkts)
    timeout 200 /share/nccl-mesh sim run --real-ports --topology $topology --link verbs --json --timeout 180 \
        --collective "$2" --algo "$3" --sizes "$4" "${@:5}" >/tmp/rows
    status=$?
    [ $status -eq 0 ] || { wrong "$what: exit status $status"; return; }
    sent=$(($(counted sent_pkts) - sent))
    right=$(total checked_bytes) passed=$(total relayed_bytes)
    moved=$(($(total direct_bytes) + passed))
    count=$(grep -c '"link":"verbs"' /tmp/rows) empty=$(grep -v '"size_bytes":0,' /tmp/rows | grep -c '"checked_bytes":0,')
    [ "$count" -gt 0 ] && [ "$count" -eq "$(wc -l </tmp/rows)" ] || wrong "$what: not every row is one over verbs"
    [ "$(total wrong_bytes)" -eq 0 ] || wrong "$what: wrong bytes: $(total wrong_bytes)"
    [ "$empty" -eq 0 ] || wrong "$what: nothing was checked in rows: $empty"
    if [ "$relays" = yes ]
    then [ "$passed" -gt 0 ] || wrong "$what: nothing was relayed, though not all that talk share cables"
    else [ "$passed" -eq 0 ] || wrong "$what: bytes relayed between neighbours: $passed"
    fi
    # The devices carry 4096 bytes a packet at most.
    [ $((sent * 4096)) -ge "$moved" ] || wrong "$what: bytes $moved, and the RDMA devices sent only packets $sent"
    checked=$((checked + right)) relayed=$((relayed + passed)) rows=$((rows + count))
    printf '%-24s rows %2d  checked %10d  direct %9d  relayed %9d  RDMA packets %6d  %3d s\n' \
        "$what" "$count" "$right" $((moved - passed)) "$passed" "$sent" $((SECONDS - began))
}
usual=0,4,8K,300K,1M
# Where each of all pairs has a connection a channel, one channel is enough: to pin the buffers of each takes the emulated machine long.
check no  all-reduce ring $usual --iters 2
check yes all-reduce tree $usual,4M --iters 2
check yes all-reduce direct $usual --iters 2 --channels 1
check no  all-gather ring $usual --iters 2
check yes all-gather pat $usual --iters 2
check yes all-gather direct $usual --iters 2 --channels 1
check no  reduce-scatter ring $usual --iters 2
check yes reduce-scatter pat $usual --iters 2
check yes reduce-scatter direct $usual --iters 2 --channels 1
check no  broadcast ring $usual --iters 2
check yes all-to-all direct $usual,4M --iters 2
check yes send-recv direct 0,4,8K,1M --iters 2
# One slot a class, so that all wait for one another as much as they ever can.
check yes all-to-all direct 1M --iters 2 --env NCCL_MESH_RELAY_SLOTS=1 --env NCCL_MESH_TRUNK_SLOTS=1
# Messages one by one, so that relays fall asleep and are woken.
check yes send-recv direct 4,8K --distance 2 --repeat 2 --iters 100

# What no link may do: meet a peer without a receive.
for counter in send_rnr_err rcvd_rnr_err retry_rnr_exceeded_err; do
    [ "$(counted $counter)" -eq 0 ] || wrong "the RDMA devices count $counter: $(counted $counter)"
done
echo "ring of $RDMA_VM_NODES: $rows rows, $checked bytes checked, $relayed bytes relayed, wrong $failed, $SECONDS s"
[ $failed -eq 0 ]
