#!/usr/bin/env bash
# link.sh [soft|uml|qemu] - run the verbs tests of the crate mesh-link where there is no RDMA hardware.
#
#   soft   on soft verbs, a userspace libibverbs: seconds, on any machine (the default)
#   uml    on the kernel's soft RoCE in User Mode Linux: about ten minutes the first time, seconds after
#   qemu   the same under QEMU: half a minute the first time, a minute after
#
# Exit status 0 only if all passed; soft skips the one that cuts a cable. What uml and qemu need: see run.sh beside this.
set -euo pipefail
cd "$(dirname "$0")/../.."
where=${1:-soft}
TESTS=(both_backends verbs verbs_allocation)

folder=$(mktemp -d "${TMPDIR:-/tmp}/mesh-link.XXXXXX")
fabric=
trap 'rm -rf "$folder" ${fabric:+"$fabric"}' EXIT

mkdir "$folder/bin"
while IFS=$'\t' read -r name path; do
    for test in "${TESTS[@]}"; do
        [ "$test" != "$name" ] || cp "$path" "$folder/bin/$name"
    done
done < <(cargo test -p mesh-link --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"kind":\["test"\].*"name":"\([a-z_]*\)".*"executable":"\([^"]*\)".*/\1\t\2/p')
for test in "${TESTS[@]}"; do
    [ -e "$folder/bin/$test" ] || { echo "link.sh: cargo built no test $test" >&2; exit 1; }
done
# One after the other: the machine may have one core, and a cut cable is everybody's.
cat >"$folder/bin/all" <<'EOF'
#!/bin/sh
cd "${0%/*}" || exit
status=0
./verbs --test-threads=1 --nocapture || status=1
./both_backends verbs:: --test-threads=1 --nocapture || status=1
./verbs_allocation --nocapture || status=1
exit $status
EOF
chmod 755 "$folder/bin/all"

case $where in
    soft)
        cargo run -q -p mesh-soft-verbs --example build -- "$folder/lib" >/dev/null
        fabric=$(mktemp -d /dev/shm/mesh-link.XXXXXX)
        printf '%s\n' 'port node0 mesh0 127.0.77.1 100G' 'port node1 mesh0 127.0.77.2 100G' \
            'cable 127.0.77.1 127.0.77.2' 'wake-delay 20000' >"$fabric/fabric"
        LD_LIBRARY_PATH=$folder/lib MESH_SOFT_VERBS=$fabric/fabric MESH_SOFT_VERBS_NODE=node0,node1 \
            MESH_TEST_VERBS=127.0.77.1,127.0.77.2 timeout 300 "$folder/bin/all"
        ;;
    uml | qemu)
        tests/rdma-vm/run.sh --vm "$where" --build-only
        tests/rdma-vm/run.sh --vm "$where" --nodes 2 --share "$folder/bin" --timeout 300 -- /share/all
        ;;
    *)
        echo "usage: link.sh [soft|uml|qemu]" >&2
        exit 2
        ;;
esac
