#!/usr/bin/env bash
# plugin.sh [uml|qemu] - run the plugin itself, relays included, on Linux's soft RoCE driver: rings of 4 and of 6 nodes, every
# collective with each of its algorithms, every byte checked, by `nccl-mesh sim run --real-ports --link verbs`.
#
# Each ring is a virtual machine of its own (see run.sh beside this). uml is the default, takes five minutes and is
# what must pass; qemu has several CPUs and takes several times as long. In it first every
# two ports that share no cable are tried: a queue pair between them must not come up, or what is said about relays would prove nothing.
# Exit status 0 only if all was as it must be: bytes right, relays used exactly where routes need them, and at least as many packets
# sent by the RDMA devices as the bytes need.
set -euo pipefail
cd "$(dirname "$0")/../.."
vm=${1:-uml}
case $vm in uml | qemu) ;; *) echo 'usage: plugin.sh [uml|qemu]' >&2; exit 2 ;; esac

folder=$(mktemp -d "${TMPDIR:-/tmp}/mesh-plugin.XXXXXX")
trap 'rm -rf "$folder"' EXIT
cargo build -q --release
# Where cargo put them, which a setting may have moved.
cargo build -q --release --message-format=json | grep -o '"/[^"]*/\(nccl-mesh\|libnccl_net_mesh\.so\)"' | tr -d '"' |
    sort -u | xargs cp -t "$folder"
cp tests/rdma-vm/plugin-guest.sh "$folder/"

tests/rdma-vm/run.sh --vm "$vm" --build-only
for nodes in 4 6; do
    # Six nodes with a relay's memory of 64 MiB each, and what they register.
    tests/rdma-vm/run.sh --vm "$vm" --nodes "$nodes" --mem 2048 --share "$folder" --timeout 900 -- /share/plugin-guest.sh
done
