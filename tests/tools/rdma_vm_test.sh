#!/bin/bash
# tools/rdma-vm, with a double of the emulator in place of a machine; and tests/rdma/inside, with doubles of the tests.
. tests/check.sh

# emulator HANGS: the first HANGS machines do not start. The others say hello and end with 3.
emulator() {
    mkdir -p "$scratch/bin"
    rm -f "$scratch"/machine.*
    cat >"$scratch/bin/qemu-system-x86_64" <<EOF
#!/bin/bash
touch $scratch/machine.\$\$
[ \$(ls $scratch/machine.* | wc -l) -gt $1 ] || exec sleep 100
machine=\$(grep -o 'path=[^,]*,mount_tag=machine' <<<"\$*") output=\$(grep -o 'id=output,path=[^ ]*' <<<"\$*")
machine=\${machine#path=} && machine=\${machine%,*}
: >\$machine/started
echo hello >\${output##*=}
echo 3 >\$machine/status
EOF
    chmod +x "$scratch/bin/qemu-system-x86_64"
}

# says HANGS WANTED: the code, and what comes from the machine
says() {
    local code=0
    emulator "$1"
    PATH=$scratch/bin:$PATH timeout 200 tools/rdma-vm -b 3 true >"$scratch/said" 2>"$scratch/errors" || code=$?
    grep -qE 'is missing|no kernel' "$scratch/errors" && skip 'no emulated machine here'
    expect "after $1 that hang" "$code $(cat "$scratch/said")" "$2"
}

test_a_machine_that_does_not_start_is_begun_again() {
    says 0 '3 hello'
    says 2 '3 hello'
}

test_one_that_never_starts_is_given_up() {
    says 9 '125 '
    has errors "$(cat "$scratch/errors")" 'did not start in 3 s'
}

test_its_end_waits_for_no_reader() {
    local code=0
    emulator 0
    # It has read all, closed the pipe, and not ended yet.
    printf '#!/bin/bash\nPATH=${PATH#*:}\n[ $# = 0 ] || exec cat "$@"\ncat\nexec sleep 3 <&-\n' >"$scratch/bin/cat"
    chmod +x "$scratch/bin/cat"
    PATH=$scratch/bin:$PATH timeout 200 tools/rdma-vm true >"$scratch/said" 2>"$scratch/errors" || code=$?
    rm "$scratch/bin/cat"
    grep -qE 'is missing|no kernel' "$scratch/errors" && skip 'no emulated machine here'
    expect ends "$code $(cat "$scratch/said")" '3 hello'
}

test_numbers_are_numbers() {
    for option in '-t 0' '-t x' '-b 0' '-b 1.5' '-c -1' '-m 2g'; do
        expect "$option" "$(exit_code tools/rdma-vm $option true)" 2
        has "$option" "$(tools/rdma-vm $option true 2>&1)" "^rdma-vm: $option: a number from 1 on"
    done
}

# inside ARGUMENT…: from another folder; its code, and what it says
inside() {
    local code=0
    mkdir -p "$scratch/programs/tests/messages"
    printf '#!/bin/bash\nfor i in {1..3000}; do echo "ok case_$i"; done\n' >"$scratch/programs/tests/messages/am_test"
    chmod +x "$scratch/programs/tests/messages/am_test"
    (root=$PWD && cd "$scratch" && TMPDIR=$scratch "$root/tests/rdma/inside" "$@") >"$scratch/said" 2>"$scratch/errors" || code=$?
    expect "code of $*: $(cat "$scratch/errors")" $code "$wanted"
}

test_what_two_transports_say_stays_apart() {
    wanted=0 inside programs shared messages/am_test
    expect lines "$(sort -u "$scratch/said" | grep -cE '^ok rdma_(rc|ud) messages/am_test case_[0-9]+$')" 6000
}

test_each_skip_needs_a_reason_of_its_own() {
    mkdir -p "$scratch/programs/tests/messages"
    printf '#!/bin/bash\nprintf "%%s\\n" "  skipped: a device that registers a region pins all of it" "skip one" "skip two"\n' >"$scratch/programs/tests/messages/tag_test"
    chmod +x "$scratch/programs/tests/messages/tag_test"
    wanted=1 inside programs shared messages/tag_test
    has said "$(cat "$scratch/said")" '^skip rdma_rc messages/tag_test one$'
    has said "$(cat "$scratch/said")" '^not ok rdma_rc messages/tag_test two$'
}

test_tests_that_are_not_there_are_named() {
    wanted=2 inside programs neither
    has errors "$(cat "$scratch/errors")" 'no half neither'
    wanted=1 inside none
    has errors "$(cat "$scratch/errors")" 'none.*No such file'
}

run_tests
