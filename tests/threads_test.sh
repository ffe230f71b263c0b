#!/bin/bash
# ThreadSanitizer runs what tests/BUILD.bazel lists under `threads`: every test that starts a thread. A *_main.c is no test.
listed=$(sed -n '/threads = \[/,/\]/p' tests/BUILD.bazel | grep -o '"[^"]*"' | tr -d '"')
failed=0
[ -n "$listed" ] && grep -q pthread_create tests/*/*.c || failed=1
for file in $(grep -lE 'pthread_create|thrd_create|weft_worker_start_thread' tests/*/*.c | grep -v '_main\.c$'); do
    name=${file#tests/} name=${name%.c}
    if ! grep -qxE "$name|${name%/*}" <<<"$listed"; then
        echo "  $file starts a thread: list it in tests/BUILD.bazel"
        failed=1
    fi
done
if [ $failed = 0 ]; then echo "ok every_test_with_threads_meets_thread_sanitizer"; else echo "not ok every_test_with_threads_meets_thread_sanitizer"; fi
exit $failed
