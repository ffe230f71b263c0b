#!/bin/bash
# tools/setup: which packages it asks for on which system, what it says, and how it ends. It runs in a copy, and finds doubles
# of the system's programs alone: nothing is installed, and neither root nor a network is needed.
. tests/check.sh
real=$(command -v bash)
doubles=$scratch/doubles

# double NAME: the program NAME is the script on standard input. It writes what it is called with to the log.
double() {
    { printf '#!%s\nprintf "%%s\\n" "%s $*" >>%q\n' "$real" "$1" "$scratch/called" && cat; } >"$doubles/$1"
    chmod +x "$doubles/$1"
}

# machine SYSTEM USER: doubles of `debian`, `ubuntu` or `fedora`, or of `other` without a package manager, with nothing installed,
# for `root`, `sudo` (who may become root) or `nobody`. The compiler finds the libraries as soon as packages are installed.
machine() {
    local program
    rm -rf "$scratch"/{doubles,tree,called,installed}
    mkdir -p "$doubles" "$scratch/tree/tools"
    : >"$scratch/called"
    cp tools/setup "$scratch/tree/tools/setup"
    for program in bash cat cmp dirname env find make mkdir rm sed; do ln -s "$(command -v $program)" "$doubles/$program"; done
    double cc <<<"[ -e $scratch/installed ]"
    double pkg-config <<<'exit 1'
    double id <<<"echo $([ "$2" = root ] && echo 0 || echo 1000)"
    [ "$2" != sudo ] || double sudo <<<'[ "$1" != -n ] || shift; [ "$1" = true ] || exec "$@"'
    [ "$2" != nobody ] || double sudo <<<'exit 1'
    case $1 in
    debian | ubuntu)
        double dpkg <<<'true'
        double dpkg-query <<<"[ ! -e $scratch/installed ] || echo installed"
        double apt-get <<<"case \$* in *install*) [ ! -e $scratch/refuses ] || exit 100; : >$scratch/installed ;; esac"
        ;;
    fedora) double dnf <<<"[ ! -e $scratch/refuses ] || exit 1; : >$scratch/installed" ;;
    esac
}

# setup ARGUMENTS…: runs it; `code`, `said` and `complained` are how it ended and what it wrote
setup() {
    code=0
    env -i PATH="$doubles" "$real" "$scratch/tree/tools/setup" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    said=$(cat "$scratch/out") complained=$(cat "$scratch/err")
}

# asked MANAGER: the packages that it was told to install
asked() { sed -n "s/^$1 .*install //p" "$scratch/called" | tr ' ' '\n' | grep -v '^-' | sort | tr '\n' ' '; }

debian_library='build-essential libev-dev libssl-dev libtalloc-dev pkg-config '
fedora_library='diffutils findutils gcc gcc-c++ libev-devel libtalloc-devel make openssl-devel pkgconf-pkg-config python3 '

# installs SYSTEM USER MANAGER PACKAGES
installs() {
    machine "$1" "$2"
    setup demo
    expect "status: $complained" $code 0
    expect packages "$(asked "$3")" "$4"
    has output "$said" '^setup: installing '
    [ "$2" = root ] || has calls "$(cat "$scratch/called")" "^sudo .*$3 .*install"
    : >"$scratch/called"
    setup demo
    expect 'status of a second run' $code 0
    expect 'output of a second run' "$said$complained" ''
    expect 'packages of a second run' "$(asked "$3")" ''
}

test_demo_installs_on_debian() {
    installs debian root apt-get "$debian_library"
    installs debian sudo apt-get "$debian_library"
}

test_demo_installs_on_ubuntu() {
    installs ubuntu root apt-get "$debian_library"
    installs ubuntu sudo apt-get "$debian_library"
}

test_demo_installs_on_fedora() {
    installs fedora root dnf "$fedora_library"
    installs fedora sudo dnf "$fedora_library"
}

test_demo_names_what_is_missing_to_who_cannot_install() {
    local system
    for system in debian ubuntu fedora other; do
        machine $system nobody
        setup demo
        expect "status on $system" $code 1
        expect "output on $system" "$said" ''
        has "errors on $system" "$complained" '^setup: Weft cannot be built here; missing:$'
        has "errors on $system" "$complained" '^  ev\.h \(Debian, Ubuntu: libev-dev; Fedora: libev-devel\)$'
        has "errors on $system" "$complained" '^  talloc\.h \(Debian, Ubuntu: libtalloc-dev; Fedora: libtalloc-devel\)$'
        has "errors on $system" "$complained" '^  openssl/evp\.h \(Debian, Ubuntu: libssl-dev; Fedora: openssl-devel\)$'
        expect "packages on $system" "$(asked apt-get)$(asked dnf)" ''
    done
}

test_demo_asks_no_package_manager_where_everything_is_there() {
    local system
    for system in debian fedora other; do
        machine $system nobody
        : >"$scratch/installed"
        setup demo
        expect "status on $system" $code 0
        expect "output on $system" "$said$complained" ''
    done
}

test_demo_names_a_missing_make() {
    machine other nobody
    rm "$doubles/make"
    setup demo
    has errors "$complained" '^  make \(Debian, Ubuntu: build-essential; Fedora: make\)$'
}

test_a_package_manager_that_fails_ends_it() {
    local system
    for system in debian fedora; do
        machine $system root
        : >"$scratch/refuses"
        setup demo
        rm "$scratch/refuses"
        [ "$code" != 0 ] || fail "ended with 0 on $system"
    done
}

test_a_package_manager_that_fails_ends_what_is_of_debian_alone() {
    local what
    for what in bench arm; do
        machine debian root
        : >"$scratch/refuses"
        setup $what
        rm "$scratch/refuses"
        expect status $code 100
        expect 'what was written' "$(ls -A "$scratch/tree")" tools
    done
}

# A manager that refuses ends it before it looks for packages of Python.
test_test_and_all_ask_debian_for_bazel() {
    local what
    for what in test all; do
        machine debian root
        : >"$scratch/refuses"
        setup $what
        rm "$scratch/refuses"
        expect status $code 100
        has packages "$(asked apt-get)" 'bazel-bootstrap .*libev-dev '
    done
    has packages "$(asked apt-get)" 'clang-tidy '
}

test_test_and_all_name_the_stage_plain_on_fedora() {
    local what user
    for what in test all; do
        for user in root nobody; do
            machine fedora $user
            setup $what
            expect status $code 1
            expect output "$said" ''
            expect 'lines of errors' "$(wc -l <"$scratch/err")" 1
            has errors "$complained" "^setup: tools/setup $what needs Debian: .*Bazel.*tools/test plain"
            expect packages "$(asked dnf)" ''
        done
    done
}

test_test_names_its_packages_to_who_cannot_install() {
    machine ubuntu nobody
    setup test
    expect status $code 1
    has errors "$complained" '^setup: cannot install packages here; missing: .*bazel-bootstrap'
}

test_packages_of_another_machine_come_after_its_name() {
    local user
    for user in root sudo; do
        machine debian $user
        setup arm
        expect "status: $complained" $code 0
        expect calls "$(grep -oE '^(dpkg --.*|apt-get [a-z]+)' "$scratch/called")" \
            $'dpkg --add-architecture arm64\napt-get update\napt-get install'
        has packages "$(asked apt-get)" 'libev-dev:arm64 .*qemu-user'
    done
}

test_what_is_of_debian_alone_asks_dnf_for_nothing() {
    local what
    for what in bench arm; do
        machine fedora root
        setup $what
        expect status $code 1
        has errors "$complained" '^setup: cannot install packages here; missing: '
        expect packages "$(asked dnf)" ''
    done
}

test_another_word_is_refused_and_says_where_the_usage_is() {
    machine debian root
    setup nonsense
    expect status $code 2
    has errors "$complained" '^setup: nothing is called nonsense \(see tools/setup --help\)'
    expect packages "$(asked apt-get)" ''
}

run_tests
