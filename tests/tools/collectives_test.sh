#!/bin/bash
# schedule, weft-info --collectives and weft-perf --tune: what they print and write is what the library takes.
. tests/check.sh
schedule=$bin/tools/schedule info=$bin/tools/weft-info perf=$bin/tools/weft-perf

test_every_algorithm_has_its_steps_printed() {
    $schedule --list >"$scratch/list"
    while read -r collective algorithm _; do
        has "$collective $algorithm" "$($schedule --collective $collective --algorithm $algorithm --ranks 5)" '^rank 4'
    done <"$scratch/list"
    has "its help" "$($schedule --help)" '^schedule --collective NAME'
    expect "an unknown one" "$($schedule --collective allreduce --algorithm no 2>/dev/null || echo $?)" 2
}

test_the_picture_is_what_is_drawn() {
    $schedule --collective allreduce --algorithm ring --ranks 8 --count 64 --svg | cmp - docs/allreduce-ring.svg
}

test_the_table_of_costs_is_that_of_the_schedules() {
    $schedule --list | while read -r collective algorithm order; do
        $schedule --collective "$collective" --algorithm "$algorithm" --ranks 8 --count 64 --cost |
            sed -E "s/^(\\w+) (\\w+), 8 ranks: ([0-9]+) steps, ([0-9]+) bytes, depth ([0-9]+)\$/| \\1 | \\2 | \\3 | \\4 | \\5 | ${order:+yes} |/"
    done >"$scratch/costs"
    grep -E '^\| \w+ \| \w+ \| [0-9]+ \| [0-9]+ \|' docs/collectives.md | diff - "$scratch/costs"
}

test_the_choice_is_shown_with_the_settings() {
    has info "$(WEFT_COLL_ALGORITHMS=allreduce:-100=ring $info --collectives)" '0 to 100 *ring  \(by the settings\)'
    expect nonsense "$(WEFT_COLL_ALGORITHMS=nonsense $info --collectives 2>/dev/null || echo $?)" 1
}

test_what_is_measured_can_be_read() {
    timeout 600 $perf --tune "$scratch/tuned" --test barrier --ranks 2 --seconds 0.001
    has tuned "$(cat "$scratch/tuned")" '^barrier@2-2:-='
    has info "$(WEFT_COLL_TUNING=$scratch/tuned $info --collectives)" 'by the settings'
    timeout 600 $perf --tune "$scratch/scan" --test scan --ranks 2 --seconds 0.001
    has "a scan's choices" "$(cat "$scratch/scan")" '^scan@2-2:.*='
    # one way for all sizes, and none that only members of one size each would have
    timeout 600 $perf --tune "$scratch/vform" --test allgatherv --ranks 2 --seconds 0.001
    has "a v-form's choice" "$(cat "$scratch/vform")" '^allgatherv@2-2=(ring|linear|hierarchy|single_copy) #'
}

run_tests
