#!/bin/bash
# tools/Dockerfile: its commands are those of this tree, and its system is one that was tried.
. tests/check.sh
file=tools/Dockerfile

# commands: what RUN, CMD and the comment's examples call of tools/, one a line, with its first argument
commands() {
    sed 's/[]["&,]/ /g' $file | grep -oE 'tools/[a-z]+( [$a-zA-Z/]+)?'
}

test_its_commands_are_in_the_tree() {
    [ "$(commands | wc -l)" -gt 3 ] || fail "few commands: $(commands)"
    while read -r script argument; do
        [ -x "$script" ] || fail "$script is no program"
        case $script in
        tools/setup) [ "$argument" = '$PART' ] || fail "$script $argument" ;;
        tools/test) has "$script" "$("$script" --help)" "\<$argument\>" ;;
        esac
    done < <(commands)
    for part in $(grep -oE 'PART=[a-z]+' $file | sed 's/PART=//' | sort -u); do
        has tools/setup "$(tools/setup --help)" "^  $part  "
    done
}

test_its_system_is_one_that_was_tried() {
    expect system "$(sed -n 's/^FROM //p' $file)" debian:12
    has CONTRIBUTING.md "$(cat CONTRIBUTING.md)" '^\| Debian 12 \|'
}

run_tests
