#!/usr/bin/env bash
# conformance.sh [soft|uml|qemu] - what verbs promise, case by case, by one C program (conformance/) where there is no RDMA hardware.
#
#   soft   on soft verbs, a userspace libibverbs, with each of its engines: seconds (the default). What the program lets pass as
#          a known deviation of soft RoCE is a failure here
#   uml    on the kernel's soft RoCE in User Mode Linux: about ten minutes the first time, seconds after
#   qemu   the same under QEMU: half a minute the first time
#
# Exit status 0 only if all passed, or if it had to be skipped, which it says. Needs cc and the headers of libibverbs (Debian:
# libibverbs-dev); what uml and qemu need besides: see run.sh beside this.
set -euo pipefail
cd "$(dirname "$0")/../.."
where=${1:-soft}
case $where in soft | uml | qemu) ;; *) echo 'usage: conformance.sh [soft|uml|qemu]' >&2; exit 2 ;; esac

command -v cc >/dev/null || { echo 'skipped: there is no cc'; exit 0; }
echo '#include <infiniband/verbs.h>' | cc -E -x c - >/dev/null 2>&1 ||
    { echo 'skipped: there is no infiniband/verbs.h (Debian: libibverbs-dev)'; exit 0; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/mesh-conformance.XXXXXX")
fabric=
trap 'rm -rf "$folder" ${fabric:+"$fabric"}' EXIT
mkdir "$folder/bin"
cc -std=gnu11 -O1 -Wall -Wextra -Werror -o "$folder/bin/conformance" tests/rdma-vm/conformance/conformance.c -libverbs

case $where in
    soft)
        cargo run -q -p mesh-soft-verbs --example build -- "$folder/lib" >/dev/null
        fabric=$(mktemp -d /dev/shm/mesh-conformance.XXXXXX)
        status=0
        for engine in 'engine inline' $'engine clock\nlatency 2000\nstrict on'; do
            echo "${engine%%$'\n'*}"
            mkdir "$fabric/${engine:7:5}"
            printf '%s\n' 'port node0 mesh0 127.0.77.1 100G' 'port node1 mesh0 127.0.77.2 100G' 'port node2 mesh0 127.0.77.3 100G' \
                'cable 127.0.77.1 127.0.77.2' "$engine" >"$fabric/${engine:7:5}/fabric"
            LD_LIBRARY_PATH=$folder/lib MESH_SOFT_VERBS=$fabric/${engine:7:5}/fabric MESH_SOFT_VERBS_NODE=node0,node1,node2 \
                timeout 300 "$folder/bin/conformance" 127.0.77.1 127.0.77.2 127.0.77.3 | tee "$folder/said" || status=1
            ! grep -q '(deviates:' "$folder/said" || { echo 'FAILED: soft verbs deviate from the specification'; status=1; }
        done
        exit $status
        ;;
    uml | qemu)
        tests/rdma-vm/run.sh --vm "$where" --build-only
        # No cable leads from the first address to the third.
        tests/rdma-vm/run.sh --vm "$where" --nodes 3 --share "$folder/bin" --timeout 300 -- \
            /share/conformance 10.77.0.1 10.77.0.2 10.77.1.2
        ;;
esac
