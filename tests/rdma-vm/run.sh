#!/usr/bin/env bash
# run.sh - run a command on real Linux RDMA verbs (soft RoCE v2), without hardware.
#
# What it does
#   It boots a small virtual machine whose kernel has the drivers ib_core,
#   ib_uverbs, rdma_cm and rdma_rxe, makes a ring of N nodes joined by N
#   point-to-point cables, runs one command in it, passes on the command's
#   standard output and standard error as they come, and returns its exit
#   status. The machine has no network card: nothing it sends leaves it. It
#   lives in memory only; all that outlasts a run is what the command writes
#   under the --out folder.
#
#   There are two kinds of machine, both with unchanged RDMA drivers:
#     --vm uml   (the default) Debian's kernel source built as User Mode Linux,
#                which runs as an ordinary process here: it is built once, in
#                some minutes, is up in a second, runs programs at nearly full
#                speed and moves some 300 MB/s over a cable. It has one CPU, so
#                processes that spin on a completion queue without yielding use
#                up their time slices (1 ms) in turn. It keeps no hostile code
#                in: that a shared folder is read-only is the guest's own rule.
#     --vm qemu  Debian's own kernel under QEMU: made in half a minute, up in
#                about 10 s, several CPUs; emulated (unless there is a real
#                KVM), so 15 to 50 times slower, some 20 MB/s over a cable. For
#                what must be seen on several CPUs, or with Debian's binary.
#
# Usage
#   run.sh [options] -- COMMAND [ARG...]
#   run.sh --nodes 6 --share target/debug --out results -- /share/my-test --all
#   run.sh --build-only
#
# Options (each also as the environment variable in brackets)
#   --nodes N          nodes in the ring, 2 to 64; 0: no ring  [RDMA_VM_NODES]  6
#   --share DIR[:AT]   host folder, read-only in the guest at AT (default /share;
#                      an absolute path). Repeatable: give AT from the second on.
#   --out DIR[:AT]     host folder, writable in the guest at AT (default /out);
#                      made if it is not there
#   --cwd DIR          folder (in the guest) that the command starts in;
#                      default /share if there is one, otherwise /
#   --env NAME=VALUE   environment variable for the command. Repeatable.
#   --extra FILE       host program or library to put into the guest at the same
#                      path, with every shared library it needs. Repeatable.
#                      (Needed only for what lies in no shared folder.)
#   --mtu N            MTU of the cables; 4200 gives RoCE an MTU of 4096 bytes,
#                      1500 one of 1024                      [RDMA_VM_MTU]    4200
#   --timeout SECONDS  limit for the whole run, boot included [RDMA_VM_TIMEOUT] 300
#                      (not for building the image: do that ahead, --build-only)
#   --vm qemu|uml      kind of machine, see above             [RDMA_VM_KIND]   uml
#   --cpus N           virtual CPUs (qemu)     [RDMA_VM_CPUS]  as the host, at most 4
#   --mem MIB          memory                                 [RDMA_VM_MEM]    1024
#   --accel tcg|kvm|auto   (qemu)                             [RDMA_VM_ACCEL]  auto
#   --kernel PACKAGE   Debian package of the kernel           [RDMA_VM_KERNEL]
#                      qemu: linux-image-amd64 (6.1, the default) or
#                      linux-image-6.12-amd64; the -cloud- kernels have no
#                      rdma_rxe. uml: linux-source-6.1 (default) or -6.12
#   --cache DIR        where the built image is kept          [RDMA_VM_CACHE]
#                      default ${XDG_CACHE_HOME:-$HOME/.cache}/rdma-vm
#   --console FILE     keep the guest kernel's console there
#   --rebuild          build the image anew
#   --build-only       build the image if need be, and stop
#   --ready            say by the exit status whether a run would begin soon: 0 if
#                      the image is there, or with uml its kernel, which is what
#                      takes long to make; otherwise 1. Nothing is built
#   --verbose          say on standard error what is being done
#
# Exit status
#   The command's own (128+n if a signal n ended it), or
#     124  the time limit was reached
#     125  the machine could not be built or booted, or ended without a status
#     126, 127  as a shell says it: the command cannot be run, is not there
#     129, 130, 143  this script was hung up, interrupted, terminated
#
# The ring, as the command sees it
#   Cable k joins the right port of node k to the left port of node k+1 (the
#   last cable joins node N-1 to node 0). A port is a network interface and an
#   RDMA device of one and the same name:
#        n<KK>r  right port of node KK      n<KK>l  left port of node KK
#   (KK: two digits, 00, 01, ...), so the devices of node 3 are those that
#   begin with "n03". On cable k the right port of node k has the address
#   10.77.k.1/30 and the left port of node k+1 has 10.77.k.2/30:
#
#        node 0          cable 0          node 1          cable 1         node 2
#        n00r 10.77.0.1 --------- 10.77.0.2 n01l   n01r 10.77.1.1 ----- ...
#
#   Use GID index 1 (the address as ::ffff:10.77.k.x, RoCE v2); index 0 is the
#   link-local address. All nodes share one network namespace, since rdma_rxe
#   of these kernels receives in the first namespace only: a process takes
#   "its" node by using only the devices with the node's prefix. Two ports that
#   are not on one cable cannot reach one another: moving a queue pair to RTR
#   fails with ETIMEDOUT after about one second.
#   The command finds the ring in the environment and in a file:
#        RDMA_VM=1   RDMA_VM_NODES=N   RDMA_VM_GID_INDEX=1
#        /etc/ring   one line a cable:  k  node dev address  node dev address
#   Bootstrap traffic between processes goes over 127.0.0.1 as usual.
#   In the guest there are: bash, busybox's tools, ip, tc, rdma, ibv_devinfo,
#   ibv_rc_pingpong and its kin, perftest (ib_write_lat, ...), rping, and
#        cable K cut     pull cable K out: both its ports lose the link
#        cable K join    put it back
#        cable K loss P  drop P percent of the packets, both ways (100: the link
#                        seems up and carries nothing); cable K loss 0 ends it
#        cable K delay T add a delay each way (such as 1ms); 0 ends it
#        cable K state   show both ports
#
# How it is made
#   Each port is one end of a veth pair; the other ends of a cable's two pairs,
#   cKKa and cKKb, hand every packet to each other (tc mirred). They play the
#   cable, so that cutting it takes the link from both ports while both stay
#   administratively up, as on real hardware. As both ports of a cable are in
#   one namespace, Linux would send between them through lo; a routing rule put
#   before the table "local" sends such traffic out through the port instead.
#
# Needs: Debian 12 (x86-64), root for installing packages (apt-get) the first
# time; afterwards neither root nor a registry.

set -uo pipefail
export LC_ALL=C

say()  { printf 'rdma-vm: %s\n' "$*" >&2; }
note() { [ -z "$VERBOSE" ] || say "$*"; }
die()  { say "$*"; exit 125; }

# ---------------------------------------------------------------- arguments --

SELF=$(readlink -f -- "${BASH_SOURCE[0]}")
NODES=${RDMA_VM_NODES:-6}
MTU=${RDMA_VM_MTU:-4200}
LIMIT=${RDMA_VM_TIMEOUT:-300}
CPUS=${RDMA_VM_CPUS:-}
MEM=${RDMA_VM_MEM:-1024}
ACCEL=${RDMA_VM_ACCEL:-auto}
KIND=${RDMA_VM_KIND:-uml}
KERNEL=${RDMA_VM_KERNEL:-}
CACHE=${RDMA_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rdma-vm}
CONSOLE= REBUILD= BUILD_ONLY= READY= VERBOSE= CWD=
SHARES=() OUTS=() ENVS=() EXTRAS=() CMD=()

usage() { sed -n '2,/^set -uo/{/^set -uo/d;s/^# \{0,1\}//;p}' "$SELF"; }

while [ $# -gt 0 ]; do
    opt=$1; shift
    case $opt in
        --rebuild)    REBUILD=1; continue;;
        --build-only) BUILD_ONLY=1; continue;;
        --ready)      READY=1; continue;;
        --verbose)    VERBOSE=1; continue;;
        -h|--help)    usage; exit 0;;
        --)           CMD=("$@"); break;;
        --*=*)        val=${opt#*=}; opt=${opt%%=*};;
        --*)          [ $# -gt 0 ] || die "option $opt needs a value (or is unknown); see --help"
                      val=$1; shift;;
        *)            die "unexpected argument '$opt': the command comes after --; see --help";;
    esac
    case $opt in
        --nodes)   NODES=$val;;
        --share)   SHARES+=("$val");;
        --out)     OUTS+=("$val");;
        --cwd)     CWD=$val;;
        --env)     [[ $val =~ ^[A-Za-z_][A-Za-z0-9_]*= ]] || die "--env wants NAME=VALUE, not '$val'"
                   ENVS+=("$val");;
        --extra)   EXTRAS+=("$val");;
        --mtu)     MTU=$val;;
        --timeout) LIMIT=$val;;
        --cpus)    CPUS=$val;;
        --mem)     MEM=$val;;
        --vm)      KIND=$val;;
        --accel)   ACCEL=$val;;
        --kernel)  KERNEL=$val;;
        --cache)   CACHE=$val;;
        --console) CONSOLE=$val;;
        *)         die "unknown option $opt; see --help";;
    esac
done

number() { [[ $2 =~ ^[0-9]{1,6}$ ]] && [ "$((10#$2))" -ge "$3" ] && [ "$((10#$2))" -le "$4" ] ||
           die "$1 must be a number from $3 to $4, not '$2'"; }
number --nodes   "$NODES" 0 64; [ "$((10#$NODES))" -ne 1 ] || die "--nodes must be 0 or from 2 to 64"
number --mtu     "$MTU" 576 65000
number --timeout "$LIMIT" 1 86400
number --mem     "$MEM" 256 65536
if [ -z "$CPUS" ]; then CPUS=$(nproc); [ "$CPUS" -le 4 ] || CPUS=4; fi
number --cpus    "$CPUS" 1 64
case $KIND in
    qemu) : "${KERNEL:=linux-image-amd64}"
          [[ $KERNEL =~ ^linux-image-[a-z0-9.+-]+$ ]] || die "--kernel wants a package such as linux-image-amd64, not '$KERNEL'";;
    uml)  : "${KERNEL:=linux-source-6.1}"
          [[ $KERNEL =~ ^linux-source-[0-9.]+$ ]] || die "--kernel wants a package such as linux-source-6.1, not '$KERNEL'";;
    *)    die "--vm must be qemu or uml, not '$KIND'";;
esac
[ "$(uname -m)" = x86_64 ] || die "this script is for x86-64 hosts"
[ -n "$BUILD_ONLY$READY" ] || [ "${#CMD[@]}" -gt 0 ] || die "no command given; see --help"

# ------------------------------------------------------- what the host needs --

# program or file that must be there : the package that has it
NEEDS=(
    /bin/busybox:busybox-static
    /bin/bash:bash            /bin/dash:dash
    /usr/bin/xz:xz-utils      /usr/bin/zstd:zstd
    /usr/bin/setpriv:util-linux
    /bin/ip:iproute2          /usr/bin/rdma:iproute2
    /usr/bin/ibv_devinfo:ibverbs-utils
    /etc/libibverbs.d/rxe.driver:ibverbs-providers
    /usr/bin/ib_write_lat:perftest
    /usr/bin/rping:rdmacm-utils
)
[ "$KIND" != qemu ] || NEEDS+=(/usr/bin/qemu-system-x86_64:qemu-system-x86)
# needed for building the kernel of --vm uml only
BUILD_NEEDS=(/usr/bin/gcc:gcc /usr/bin/make:make /usr/include/stdio.h:libc6-dev
    /usr/bin/flex:flex /usr/bin/bison:bison /usr/bin/bc:bc)
# host programs copied into the guest, with the libraries that they need
PROGRAMS=(
    /bin/bash /bin/dash ip rdma tc
    ibv_devices ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong
    ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat
    rping
    # busybox's forms of these would start busybox's 'ip' where 'ip' is meant
    timeout env nohup nice stdbuf chroot xargs find setsid taskset nsenter unshare flock
)
# libraries that programs built on Debian 12 (Rust, C, C++) need beyond those
LIBRARIES=(libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libresolv.so.2
    libnss_files.so.2 libgcc_s.so.1 libstdc++.so.6 libibverbs.so.1 librdmacm.so.1 libz.so.1)
# modules, in any order: what they depend on is found
MODULES=(virtio_pci virtio_console 9pnet_virtio 9p crc32_generic crc32c_intel crc32c_generic
    veth sch_ingress cls_matchall act_mirred sch_netem ib_uverbs rdma_ucm rdma_rxe)

apt() { DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" >>"$WORK/apt.log" 2>&1; }

install_packages() {
    local need file missing=()
    for need in "${NEEDS[@]}" "$@"; do
        file=${need%%:*}
        [ -e "$file" ] || missing+=("${need#*:}")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    [ "$(id -u)" -eq 0 ] || die "missing packages, and only root can install them: ${missing[*]}"
    note "installing ${missing[*]}"
    apt install --no-install-recommends "${missing[@]}" ||
        { apt update && apt install --no-install-recommends "${missing[@]}"; } ||
        { tail -n 15 "$WORK/apt.log" >&2; die "apt-get could not install: ${missing[*]}"; }
}

# ------------------------------------------------------------ building an image --

# copy_in ROOT FILE: a host file at the same path, and the libraries it is
# linked with. In ROOT, /bin, /sbin, /lib and /lib64 are links into /usr.
copy_in() {
    local root=$1 file=$2 lib
    [ -e "$file" ] || return 1
    [ ! -e "$root$file" ] || return 0
    mkdir -p "$root${file%/*}" && cp -L "$file" "$root$file" || return 1
    while read -r lib; do
        [ -e "$root$lib" ] || { mkdir -p "$root${lib%/*}" && cp -L "$lib" "$root$lib"; } || return 1
    done < <(ldd "$file" 2>/dev/null | grep -o '/[^ ()]*')
    return 0
}

skeleton() { # ROOT
    local d
    mkdir -p "$1"/usr/{bin,sbin,lib,lib64} || return 1
    for d in bin sbin lib lib64; do [ -e "$1/$d" ] || ln -s "usr/$d" "$1/$d" || return 1; done
}

pack() { # ROOT FILE: one cpio archive
    (cd "$1" && find . -print0 | tr '\0' '\n' | busybox cpio -o -H newc 2>/dev/null) >"$2"
}

# Debian's vmlinuz unpacks itself; emulated, that takes seconds. QEMU can start
# the unpacked kernel directly (PVH), so unpack it here, once.
unpack_kernel() { # VMLINUZ TO
    local pair magic tool offset
    for pair in 'fd377a585a00:xz -dc' '28b52ffd:zstd -dcq' '1f8b08:gzip -dc'; do
        magic=${pair%%:*}; tool=${pair#*:}
        while read -r offset; do
            tail -c "+$((offset + 1))" "$1" | $tool 2>/dev/null >"$2"
            [ "$(head -c 4 "$2" | od -An -tx1 | tr -d ' ')" = 7f454c46 ] && return 0
        done < <(grep -aobP "$(sed 's/../\\x&/g' <<<"$magic")" "$1" | cut -d: -f1)
    done
    return 1
}

declare -A SEEN
add_module() { # KERNELDIR ROOT NAME
    local name=${3//-/_} file dep target
    [ -z "${SEEN[$name]:-}" ] || return 0
    SEEN[$name]=1
    file=$(find "$1" -name "${name//_/[-_]}.ko" -o -name "${name//_/[-_]}.ko.xz" | head -n 1)
    if [ -z "$file" ]; then
        grep -Eq "/${name//_/[-_]}\.ko$" "$1"/lib/modules/*/modules.builtin && return 0
        say "the kernel of $KERNEL has no module $name"; return 1
    fi
    target=$2/lib/modules/$name.ko
    case $file in *.xz) xz -dc "$file" >"$target";; *) cp "$file" "$target";; esac || return 1
    for dep in $(tr '\0' '\n' <"$target" | sed -n 's/^depends=//p' | tr , ' '); do
        add_module "$1" "$2" "$dep" || return 1
    done
    echo "$name" >>"$2/lib/modules/order"
}

fetch_package() { # NAME: download it, unpack it in $WORK/kernel
    note "fetching $1"
    mkdir -p "$WORK/deb" "$WORK/kernel"; chmod 755 "$WORK" "$WORK/deb"
    (cd "$WORK/deb" && { apt download "$1" ||
        { [ "$(id -u)" -eq 0 ] && apt update && apt download "$1"; }; }) ||
        { tail -n 10 "$WORK/apt.log" >&2; die "apt-get could not download $1"; }
    dpkg-deb -x "$WORK"/deb/*.deb "$WORK/kernel" || die "cannot unpack $1 (disk full?)"
    rm -rf "$WORK/deb"
}

# The current package behind a name such as linux-image-amd64.
kernel_behind() {
    apt-cache depends "$1" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1
}

debian_kernel() { # FOLDER
    local package
    package=$(kernel_behind "$KERNEL")
    if [ -z "$package" ] && [ "$(id -u)" -eq 0 ]; then apt update; package=$(kernel_behind "$KERNEL"); fi
    [ -n "$package" ] || package=$KERNEL
    fetch_package "$package"
    unpack_kernel "$(echo "$WORK"/kernel/boot/vmlinuz-*)" "$1/vmlinux" || die "cannot unpack the kernel of $package"
    echo "$package" >"$1/kernel"
}

# The options of the UML kernel: all that rdma_rxe needs (PCI over virtio is there
# for the DMA interface that it brings, there is no such device), the usual
# system calls, and what the ring is made of.
UML_OPTIONS=(64BIT BLK_DEV_INITRD DEVTMPFS TMPFS PROC_FS SYSFS SYSCTL PROC_SYSCTL HOSTFS BINFMT_ELF BINFMT_SCRIPT
    PRINTK BUG MULTIUSER TTY UNIX98_PTYS SSL NULL_CHAN STDERR_CONSOLE DEBUG_INFO_NONE
    FUTEX EPOLL EVENTFD SIGNALFD TIMERFD POSIX_TIMERS POSIX_MQUEUE SYSVIPC SHMEM MEMFD_CREATE AIO IO_URING MEMBARRIER
    FILE_LOCKING ADVISE_SYSCALLS INOTIFY_USER HIGH_RES_TIMERS NO_HZ_IDLE
    NAMESPACES NET_NS PID_NS UTS_NS IPC_NS
    NET UNIX PACKET INET IP_ADVANCED_ROUTER IP_MULTIPLE_TABLES NETDEVICES NET_CORE VETH
    NET_SCHED NET_SCH_INGRESS NET_SCH_NETEM NET_CLS NET_CLS_ACT NET_CLS_MATCHALL NET_ACT_MIRRED
    CRYPTO_CRC32 CRYPTO_CRC32C VIRTIO_UML UML_PCI_OVER_VIRTIO
    INFINIBAND INFINIBAND_USER_ACCESS INFINIBAND_USER_MAD INFINIBAND_ADDR_TRANS RDMA_RXE
    DEBUG_KERNEL DEBUG_FS SCHED_DEBUG)
uml_kernel() { # FOLDER
    local dir option kept
    # kept apart from the image: an edit of the other parts needs no new kernel
    kept=$CACHE/kernel-$KERNEL-$( { declare -f uml_kernel; echo "${UML_OPTIONS[@]}"; } | sha256sum | cut -c 1-16)
    if [ -z "$REBUILD" ] && [ -e "$kept/linux" ]; then
        cp "$kept"/{linux,kernel} "$1/" || die "cannot write to $1 (disk full?)"
        return
    fi
    install_packages "${BUILD_NEEDS[@]}"
    fetch_package "$KERNEL"
    tar -C "$WORK" -xf "$WORK"/kernel/usr/src/linux-source-*.tar.xz || die "cannot unpack the kernel's source (disk full?)"
    rm -rf "$WORK/kernel"
    dir=$(echo "$WORK"/linux-source-*)
    # Two changes to the source. UML's tick is fixed at 100 Hz: as it has one CPU,
    # 1000 Hz makes it fairer to processes that spin. And it keeps 2696 bytes for a
    # process's vector registers, where processors with AMX have 11008 ("ptrace set
    # fp regs failed"); that room is taken on kernel stacks, too, so these
    # are four times as large (KERNEL_STACK_ORDER).
    sed -i '/^config HZ$/,/^$/s/default 100$/default 1000/' "$dir/arch/um/Kconfig"
    sed -i 's/DEFINE_LONGS(HOST_FP_SIZE, 2696)/DEFINE_LONGS(HOST_FP_SIZE, 11264)/' "$dir/arch/x86/um/user-offsets.c"
    { printf 'CONFIG_%s=y\n' "${UML_OPTIONS[@]}"
      echo CONFIG_KERNEL_STACK_ORDER=4
      echo CONFIG_UML_PCI_OVER_VIRTIO_DEVICE_ID=1234; } >"$dir/rdma.config"
    make -C "$dir" ARCH=um allnoconfig KCONFIG_ALLCONFIG=rdma.config >"$WORK/make.log" 2>&1 ||
        { tail -n 15 "$WORK/make.log" >&2; die "the kernel's configuration failed"; }
    for option in "${UML_OPTIONS[@]}"; do
        grep -q "^CONFIG_$option=y" "$dir/.config" || note "this kernel has no option $option"
    done
    grep -q '^CONFIG_RDMA_RXE=y' "$dir/.config" || die "$KERNEL cannot be built with rdma_rxe"
    say "building the UML kernel from $KERNEL, once; this takes some minutes"
    make -C "$dir" ARCH=um -j"$(nproc)" linux >"$WORK/make.log" 2>&1 </dev/null ||
        { grep -n 'rror' "$WORK/make.log" | head >&2; tail -n 5 "$WORK/make.log" >&2; die "the kernel's build failed"; }
    strip -o "$1/linux" "$dir/linux" || cp "$dir/linux" "$1/linux" || die "cannot keep the kernel in $1"
    echo "User Mode Linux $(make -s -C "$dir" ARCH=um kernelrelease 2>/dev/null) from $KERNEL" >"$1/kernel"
    rm -rf "$dir"
    mkdir -p "$kept" && cp "$1"/{linux,kernel} "$kept/" || die "cannot keep the kernel in $kept"
}

build_image() { # FOLDER
    local into=$1 root=$WORK/root kdir=$WORK/kernel program path lib applet
    install_packages
    if [ "$KIND" = uml ]; then uml_kernel "$into"; else debian_kernel "$into"; fi

    note "building the image"
    skeleton "$root" || die "cannot write under $WORK"
    mkdir -p "$root"/{proc,sys,dev,tmp,run,root,var/log,etc/libibverbs.d,lib/modules}
    for program in "${PROGRAMS[@]}"; do
        path=$(readlink -f "$(PATH=/usr/sbin:/usr/bin:/sbin:/bin command -v "$program")")
        copy_in "$root" "$path" || die "cannot copy $program into the image"
        [ -e "$root/usr/bin/${program##*/}" ] || ln -s "$path" "$root/usr/bin/${program##*/}"
    done
    ln -sf dash "$root/bin/sh"   # busybox's own shell would prefer its own 'ip' and 'tc'
    for lib in "${LIBRARIES[@]}"; do
        path=$(ldconfig -p | sed -n "s|^[[:space:]]*${lib//./\\.} (libc6,x86-64.*=> ||p" | head -n 1)
        [ -z "$path" ] || copy_in "$root" "$path" || die "cannot copy $lib into the image"
    done
    for path in /usr/lib/x86_64-linux-gnu/libibverbs/lib{rxe,siw}-rdmav*.so; do
        copy_in "$root" "$path" || die "cannot copy $path into the image"
    done
    cp /etc/libibverbs.d/{rxe,siw}.driver "$root/etc/libibverbs.d/"
    cp /bin/busybox "$root/bin/busybox"
    for applet in $(busybox --list); do
        [ -e "$root/bin/$applet" ] || [ -L "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
    done
    cp /etc/ld.so.conf "$root/etc/"; cp -r /etc/ld.so.conf.d "$root/etc/"
    echo 'root:x:0:0:root:/root:/bin/bash' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    printf '127.0.0.1 localhost rdma-vm\n' >"$root/etc/hosts"
    printf 'passwd: files\ngroup: files\nhosts: files\n' >"$root/etc/nsswitch.conf"
    ldconfig -r "$root" 2>/dev/null
    : >"$root/lib/modules/order"
    if [ "$KIND" = qemu ]; then
        for program in "${MODULES[@]}"; do add_module "$kdir" "$root" "$program" || die "no image without it"; done
    fi
    guest_init >"$root/init"; guest_cable >"$root/usr/bin/cable"
    chmod 755 "$root/init" "$root/usr/bin/cable"
    pack "$root" "$into/base.cpio" || die "cannot pack the image (disk full?)"
}

# -------------------------------------------------------- the guest's own part --

guest_init() { cat <<'EOF_INIT'
#!/bin/bash
# The first process of the guest. /run.conf sets NODES, MTU, MHZ, CWD, MOUNTS,
# ENVS and CMD; what it prints here goes to the console.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t tmpfs -o mode=1777 tmp /tmp
ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin; ln -sf fd/1 /dev/stdout; ln -sf fd/2 /dev/stderr
stage() { read -r up _ </proc/uptime; echo "rdma-vm-guest: $1 at $up s"; }
stage 'started'
while read -r m; do insmod "/lib/modules/$m.ko" || echo "rdma-vm-guest: cannot load $m"; done </lib/modules/order

# Ways to the host: out and err carry the command's output, rc its status. Under
# QEMU they are virtio ports, known by name; under UML they are serial lines.
declare -A port
for p in /sys/class/virtio-ports/*; do
    [ -e "$p/name" ] && port[$(<"$p/name")]=/dev/${p##*/}
done
UML=; grep -q hostfs /proc/filesystems && UML=1
if [ -n "$UML" ]; then
    port=([out]=/dev/ttyS0 [err]=/dev/ttyS1 [rc]=/dev/ttyS2)
    for p in "${port[@]}"; do stty -F "$p" raw -echo; done
fi
finish() { # the status, or why there is none
    echo "$1" >"${port[rc]}"
    sync
    stage "ends ($1)"
    for m in "${mounted[@]}"; do umount "$m" 2>/dev/null; done
    poweroff -f
    sleep 60
}
mounted=()
. /run.conf || finish 'no configuration'
for m in "${MOUNTS[@]}"; do       # TAG MODE PATH
    read -r tag mode at <<<"$m"
    mkdir -p "$at"
    if [ -n "$UML" ]; then
        mount -t hostfs -o "$mode,$tag" none "$at" || finish "cannot mount $at"
        mounted+=("$at")
        continue
    fi
    cache=none; [ "$mode" = ro ] && cache=loose
    mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,cache=$cache,$mode" "$tag" "$at" ||
        finish "cannot mount $at"
    mounted+=("$at")
done

if [ -n "$UML" ]; then
    # short time slices: there is one CPU, and RDMA programs like to spin
    mount -t debugfs none /sys/kernel/debug
    cd /sys/kernel/debug/sched && for f in latency_ns min_granularity_ns wakeup_granularity_ns base_slice_ns; do
        [ ! -e $f ] || echo 100000 >$f
    done
    # perftest takes the clock's rate from here, and UML does not tell it
    { sed '/^[[:space:]]*$/d' /proc/cpuinfo; printf 'cpu MHz\t\t: %s\n\n' "$MHZ"; } >/run/cpuinfo
    mount --bind /run/cpuinfo /proc/cpuinfo
fi

ulimit -l unlimited
ulimit -n 65536
ip link set lo up
# A cable loses nothing, and RoCE counts on that. Here packets on their way wait
# in the processor's queue, which holds 1000 by default: six nodes that all send
# at once overflow it.
echo 100000 >/proc/sys/net/core/netdev_max_backlog
cd /proc/sys/net/ipv4/conf
for c in all default; do
    echo 0 >$c/rp_filter; echo 1 >$c/accept_local; echo 1 >$c/arp_ignore; echo 2 >$c/arp_announce
done
# A cut makes the kernel forget the peer's MAC address, and rxe, unlike hardware,
# needs it for each packet: let it be asked again soon, for a joined cable to heal
# at the next retry.
echo 20 >/proc/sys/net/ipv4/neigh/default/retrans_time_ms
[ ! -d /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
cd /
if [ "$NODES" -gt 0 ]; then
    printf '%s\n' 'rule add pref 100 lookup local' 'rule del pref 0' \
        'rule add pref 10 iif lo lookup 10' | ip -batch - || finish 'cannot set the routing rules'
    links= routes= verbs= panel=
    for ((k = 0; k < NODES; k++)); do
        j=$(((k + 1) % NODES))
        printf -v a 'n%02dr' $k; printf -v b 'n%02dl' $j
        printf -v ca 'c%02da' $k; printf -v cb 'c%02db' $k
        links+="link add $a mtu $MTU type veth peer name $ca mtu $MTU
link add $b mtu $MTU type veth peer name $cb mtu $MTU
addr add 10.77.$k.1/30 dev $a
addr add 10.77.$k.2/30 dev $b
link set $ca up
link set $cb up
link set $a up
link set $b up
"
        routes+="route add 10.77.$k.2/32 dev $a src 10.77.$k.1 table 10
route add 10.77.$k.1/32 dev $b src 10.77.$k.2 table 10
"
        panel+="qdisc add dev $ca ingress
filter add dev $ca ingress matchall action mirred egress redirect dev $cb
qdisc add dev $cb ingress
filter add dev $cb ingress matchall action mirred egress redirect dev $ca
"
        verbs+="link add $a type rxe netdev $a
link add $b type rxe netdev $b
"
        echo "$k $k $a 10.77.$k.1 $j $b 10.77.$k.2" >>/etc/ring
    done
    printf %s "$links" | ip -batch - || finish 'cannot make the network interfaces'
    printf %s "$panel" | tc -batch - || finish 'cannot join the cables'
    printf %s "$routes" | ip -batch - || finish 'cannot set the routes'
    printf %s "$verbs" | rdma -b - || finish 'cannot make the rxe devices'
fi
stage 'ready'

for e in "${ENVS[@]}"; do export "$e"; done
export RDMA_VM=1 RDMA_VM_NODES=$NODES RDMA_VM_GID_INDEX=1
[ -n "$CWD" ] || { CWD=/; [ -d /share ] && CWD=/share; }
cd "$CWD" || finish "there is no folder $CWD in the guest"
mkfifo /run/out /run/err
cat </run/out >"${port[out]}" & c1=$!
cat </run/err >"${port[err]}" & c2=$!
( exec </dev/null >/run/out 2>/run/err
  exec "${CMD[@]}" )
rc=$?
# what the command left behind may still hold its output open: wait 2 s for it
for ((i = 0; i < 40; i++)); do
    kill -0 $c1 2>/dev/null || kill -0 $c2 2>/dev/null || break
    sleep 0.05
done
finish "exit $rc"
EOF_INIT
}

guest_cable() { cat <<'EOF_CABLE'
#!/bin/dash
# cable K cut|join|state | cable K loss PERCENT | cable K delay TIME
# (one process beside this one where possible: starting one is slow under QEMU)
die() { echo "cable: $*" >&2; exit 2; }
[ $# -ge 2 ] || die 'usage: cable K cut|join|state|loss PERCENT|delay TIME'
while read -r k _ a _ _ b _; do [ "$k" = "$1" ] && break; done </etc/ring
[ "$k" = "$1" ] || die "there is no cable $1"
[ ${#k} -eq 2 ] || k=0$k
shape() {
    if [ $# -eq 0 ]
    then printf 'qdisc del dev %s root\n' c${k}a c${k}b | tc -force -batch - 2>/dev/null; :
    else for d in a b; do echo "qdisc replace dev c$k$d root netem limit 100000 $*"; done | tc -batch -
    fi
}
case $2 in
    cut)   printf 'link set %s down\n' c${k}a c${k}b | ip -batch - ;;
    join)  printf 'link set %s up\n' c${k}a c${k}b | ip -batch - ;;
    loss)  [ -n "$3" ] || die 'how much?'
           if [ "${3%\%}" = 0 ]; then shape; else shape loss "${3%\%}%"; fi ;;
    delay) [ -n "$3" ] || die 'how long?'
           if [ "$3" = 0 ]; then shape; else shape delay "$3"; fi ;;
    state) for d in $a $b; do read -r s </sys/class/infiniband/$d/ports/1/state; echo "$d $s"; done ;;
    *)     die "unknown action $2" ;;
esac
EOF_CABLE
}

# --------------------------------------------------------------- the main part --

for old in "${TMPDIR:-/tmp}"/rdma-vm.*; do   # what a run that was killed outright left
    [ -O "$old/pid" ] && read -r pid <"$old/pid" && [ ! -d "/proc/$pid" ] && rm -rf "$old"
done
WORK=$(mktemp -d "${TMPDIR:-/tmp}/rdma-vm.XXXXXX") || die "cannot make a temporary folder"
echo $$ >"$WORK/pid"
VM_PID= SLEEP_PID= OUT_FD= ERR_FD= OUT_PID= ERR_PID= PART=

stop_pid() { # PID: end it and wait till it has gone
    [ -n "$1" ] || return 0
    local i
    disown "$1" 2>/dev/null   # or bash would report its end
    kill -TERM "$1" 2>/dev/null || return 0
    [ "$KIND" = qemu ] || kill -KILL "$1" 2>/dev/null   # 'unshare' would not heed TERM
    for ((i = 0; i < 30; i++)); do kill -0 "$1" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$1" 2>/dev/null
    return 0
}
close_streams() { # the two 'cat' that pass the output on end when both ends are closed
    local pid i
    [ -z "$OUT_FD" ] || { exec {OUT_FD}>&-; OUT_FD=; }
    [ -z "$ERR_FD" ] || { exec {ERR_FD}>&-; ERR_FD=; }
    for pid in $OUT_PID $ERR_PID; do
        for ((i = 0; i < 50; i++)); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -KILL "$pid" 2>/dev/null
    done
    OUT_PID= ERR_PID=
}
cleanup() {
    trap '' HUP INT TERM
    stop_pid "$VM_PID"; VM_PID=
    [ -z "$SLEEP_PID" ] || { kill -KILL "$SLEEP_PID"; wait "$SLEEP_PID"; } 2>/dev/null
    close_streams
    [ -z "$CONSOLE" ] || [ ! -e "$WORK/console.log" ] || cp "$WORK/console.log" "$CONSOLE"
    [ -z "$PART" ] || rm -rf "$PART"
    rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# The image's name tells what it was made from: this script and the kernel's
# package. A change of either builds another; an image already there is used
# without asking any registry.
KEY=$( { cat "$SELF"; echo "$KERNEL"; } | sha256sum | cut -c 1-16)
IMAGE=$CACHE/image-$KERNEL-$KEY
if [ -n "$READY" ]; then
    [ ! -e "$IMAGE/base.cpio" ] || exit 0
    [ "$KIND" = uml ] || exit 1
    # As uml_kernel names it; its own text is part of the name.
    [ -e "$CACHE/kernel-$KERNEL-$( { declare -f uml_kernel; echo "${UML_OPTIONS[@]}"; } | sha256sum | cut -c 1-16)/linux" ]
    exit
fi
mkdir -p "$CACHE" || die "cannot make the cache folder $CACHE"
if [ -n "$REBUILD" ] || [ ! -e "$IMAGE/base.cpio" ]; then
    exec {LOCK}>"$CACHE/lock" || die "cannot write to $CACHE"
    flock -w 900 "$LOCK" || die "another build of the image has held $CACHE/lock for 15 minutes"
    if [ -n "$REBUILD" ] || [ ! -e "$IMAGE/base.cpio" ]; then
        began=$SECONDS
        PART=$(mktemp -d "$CACHE/part.XXXXXX") || die "cannot write to $CACHE"
        build_image "$PART"
        rm -rf "$IMAGE"
        chmod 755 "$PART"
        mv "$PART" "$IMAGE" || die "cannot keep the image in $CACHE"
        PART=
        for old in "$CACHE/image-$KERNEL"-????????????????; do   # of earlier forms of this script
            [ "$old" = "$IMAGE" ] || [ -z "$(find "$old" -maxdepth 0 -mtime +1 2>/dev/null)" ] || rm -rf "$old"
        done
        note "image built in $((SECONDS - began)) s: $(cat "$IMAGE/kernel"), $(du -sh "$IMAGE" | cut -f 1)"
    fi
    exec {LOCK}>&-
fi
if [ -n "$BUILD_ONLY" ]; then
    say "image ready in $IMAGE ($(cat "$IMAGE/kernel"), $(du -sh "$IMAGE" | cut -f 1))"
    exit 0
fi
install_packages    # the image may come from another machine's cache

# Folders: each becomes a 9p file system with a tag of its own; UML mounts them
# by their names.
VM=()
MOUNTS=()
add_folder() { # DIR[:AT] DEFAULT_AT ro|rw
    local dir=${1%%:*} at=$2 n=${#MOUNTS[@]} ro=on
    case $1 in *:*) at=${1#*:};; esac
    [[ $at == /?* && $at != *[[:space:]]* ]] || die "'$at' cannot be a folder in the guest: give an absolute path without blanks"
    [ "$3" = ro ] || { ro=off; mkdir -p "$dir" || die "cannot make the folder $dir"; }
    dir=$(readlink -e -- "$dir") && [ -d "$dir" ] || die "there is no folder ${1%%:*}"
    if [ "$KIND" = uml ]; then
        [[ $dir != *[[:space:],]* ]] || die "with --vm uml a shared folder's name can have no blank or comma: $dir"
        MOUNTS+=("$dir $3 $at")
        return
    fi
    VM+=(-fsdev "local,id=f$n,path=${dir//,/,,},security_model=none,multidevs=remap,readonly=$ro"
           -device "virtio-9p-pci,fsdev=f$n,mount_tag=f$n")
    MOUNTS+=("f$n $3 $at")
}
for folder in "${SHARES[@]}"; do add_folder "$folder" /share ro; done
for folder in "${OUTS[@]}"; do add_folder "$folder" /out rw; done
[ "${#MOUNTS[@]}" -le 12 ] || die "at most 12 folders can be shared"
[ "$(printf '%s\n' "${MOUNTS[@]}" | cut -d ' ' -f 3 | sort | uniq -d | wc -l)" -eq 0 ] ||
    die "two folders have the same place in the guest; use --share DIR:/place"

# What this run adds to the image: its configuration, the extra files.
ADD=$WORK/add
mkdir -p "$ADD"
if [ "${#EXTRAS[@]}" -gt 0 ]; then
    for file in "${EXTRAS[@]}"; do
        path=$(realpath -s -- "$file") && [ -f "$path" ] || die "--extra: there is no file $file"
        # paths are kept under /usr, where the guest's /bin, /lib, ... lead
        while read -r one; do
            to=$(sed -E 's#^/(bin|sbin|lib|lib64)/#/usr/\1/#' <<<"$one")
            mkdir -p "$ADD${to%/*}" && cp -L "$one" "$ADD$to" || die "cannot copy $one"
        done < <(echo "$path"; ldd "$path" 2>/dev/null | grep -o '/[^ ()]*')
    done
fi
{
    printf 'NODES=%d\nMTU=%d\nCWD=%q\n' "$((10#$NODES))" "$((10#$MTU))" "$CWD"
    printf 'MHZ=%q\n' "$(sed -n 's/^cpu MHz[^:]*: *//p' /proc/cpuinfo | head -n 1)"
    printf 'MOUNTS=('; [ "${#MOUNTS[@]}" -eq 0 ] || printf '%q ' "${MOUNTS[@]}"; printf ')\n'
    printf 'ENVS=(';   [ "${#ENVS[@]}" -eq 0 ] || printf '%q ' "${ENVS[@]}"; printf ')\n'
    printf 'CMD=(';    printf '%q ' "${CMD[@]}"; printf ')\n'
} >"$ADD/run.conf"
pack "$ADD" "$WORK/add.cpio" && cat "$IMAGE/base.cpio" "$WORK/add.cpio" >"$WORK/initrd" ||
    die "cannot write the image to $WORK (disk full?)"

qemu_command() {
    # Hardware virtualisation only where it is the processor's own. Under kvm_pvm
    # (a nested host) /dev/kvm is there, but a stock kernel would be interpreted
    # there one instruction at a time, far slower than QEMU's translation.
    if [ "$ACCEL" = auto ]; then
        ACCEL=tcg
        if [ -r /dev/kvm ] && [ -w /dev/kvm ] && { [ -d /sys/module/kvm_intel ] || [ -d /sys/module/kvm_amd ]; }; then
            ACCEL=kvm
        fi
    fi
    case $ACCEL in
        kvm) VM+=(-accel kvm -cpu host);;
        tcg) VM+=(-accel tcg,thread=multi -cpu max);;
        *)   die "--accel must be auto, tcg or kvm";;
    esac
    VM=(/usr/bin/qemu-system-x86_64
        -nodefaults -no-user-config -machine q35 -smp "$CPUS" -m "$MEM" -display none -nic none -no-reboot
        "${VM[@]}"
        -kernel "$IMAGE/vmlinux" -initrd "$WORK/initrd"
        -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc audit=0 rcupdate.rcu_expedited=1"
        -chardev "file,id=console,path=$WORK/console.log" -serial chardev:console
        -add-fd fd=3,set=1 -add-fd fd=4,set=2
        -chardev file,id=out,path=/dev/fdset/1,append=on
        -chardev file,id=err,path=/dev/fdset/2,append=on
        -chardev "file,id=rc,path=$WORK/rc"
        -device virtio-serial-pci
        -device virtserialport,chardev=out,name=out
        -device virtserialport,chardev=err,name=err
        -device virtserialport,chardev=rc,name=rc)
}

uml_command() {
    # UML keeps its memory in a file and runs each guest process in a process of
    # the host. A PID namespace of its own makes all of these end with the first.
    local space=(unshare --fork --pid --kill-child)
    [ "$(id -u)" -eq 0 ] || space+=(--user --map-root-user)
    "${space[@]}" true 2>/dev/null || { space=(); note "no PID namespace to be had; going on without"; }
    VM=("${space[@]}" "$IMAGE/linux" "mem=${MEM}M" "initrd=$WORK/initrd" "uml_dir=$WORK/uml"
        con=null con0=null,fd:1 ssl=null ssl0=null,fd:3 ssl1=null,fd:4 ssl2=null,fd:5 quiet panic=-1)
}

"${KIND}_command"
# The output goes through two 'cat', so that it may be a file, a pipe or a terminal.
exec {OUT_FD}> >(exec cat);     OUT_PID=$!
exec {ERR_FD}> >(exec cat >&2); ERR_PID=$!
: >"$WORK/rc"; : >"$WORK/console.log"; : >"$WORK/vm.log"
VM_LOG=$WORK/vm.log; [ "$KIND" = qemu ] || VM_LOG=$WORK/console.log
note "booting $(cat "$IMAGE/kernel"): $NODES nodes, $MEM MiB, $KIND$([ "$KIND" = uml ] || echo " ($ACCEL, $CPUS CPUs)")"
# pdeathsig: should this script be killed outright, the kernel ends the machine too.
# TMPDIR and the like are unset so that UML keeps its memory in /dev/shm.
env -u TMPDIR -u TMP -u TEMP setpriv --pdeathsig KILL "${VM[@]}" \
    3>&"$OUT_FD" 4>&"$ERR_FD" 5>>"$WORK/rc" {OUT_FD}>&- {ERR_FD}>&- </dev/null >>"$VM_LOG" 2>&1 &
VM_PID=$!
setpriv --pdeathsig KILL sleep "$LIMIT" {OUT_FD}>&- {ERR_FD}>&- </dev/null >/dev/null 2>&1 &
SLEEP_PID=$!
wait -n "$VM_PID" "$SLEEP_PID"

if kill -0 "$VM_PID" 2>/dev/null && ! kill -0 "$SLEEP_PID" 2>/dev/null; then
    stop_pid "$VM_PID"; VM_PID= SLEEP_PID=
    close_streams
    say "time limit of $LIMIT s reached; the machine was ended"
    grep -q '^rdma-vm-guest: ready' "$WORK/console.log" 2>/dev/null ||
        { say "it had not come up; the console's end:"; tail -n 15 "$WORK/console.log" >&2; }
    exit 124
fi
wait "$VM_PID"; vm_status=$?
VM_PID=
close_streams
status=$(tr -d '\0\r' <"$WORK/rc" 2>/dev/null | head -n 1)
case $status in
    'exit '*) note "$(grep -a '^rdma-vm-guest:' "$WORK/console.log" | tr '\n\r' '; ')"
              exit "${status#exit }";;
    ?*)       say "the guest gave up: $status; the console's end:"
              tail -n 15 "$WORK/console.log" >&2; exit 125;;
esac
say "the machine ended without a status (its own was $vm_status); what was said:"
{ tail -n 10 "$WORK/vm.log"; tail -n 25 "$WORK/console.log"; } >&2 2>/dev/null
exit 125
