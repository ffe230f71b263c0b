#!/bin/bash
# tools/build, tools/install and tools/demo: what they ask of make, wherever the tree lies, and what they refuse. They run in a copy.
# A double of make writes what it is called with, and makes programs that do the same.
. tests/check.sh
doubles=$scratch/doubles log=$scratch/called
mkdir -p "$doubles"
cat >"$doubles/make" <<'MAKE'
#!/bin/bash
folder=
for word; do
    case $word in
    OUT=*) folder=${word#OUT=} ;;
    lib) mkdir -p "$folder" && touch "$folder"/libweft.{so,a} ;;
    -* | [A-Z]*=* | tools/build.mk) continue ;;
    */tools/*) mkdir -p "${word%/*}" && printf '#!/bin/bash\nprintf "ran %%s\\n" "$0 $*"\n' >"$word" && chmod +x "$word" ;;
    esac
    printf '%s\n' "$word" >>"$CALLED"
done
MAKE
chmod +x "$doubles/make"

# tree FOLDER: a copy of what these scripts read. tools/setup finds nothing missing.
tree() {
    rm -rf "$scratch/trees" "$log"
    mkdir -p "$1/tools" "$1/include/weft/adapters" "$1/examples" "$1"/docs/{performance,fsm,dask}
    cp tools/{build,install,demo} "$1/tools"
    printf '#!/bin/bash\n' >"$1/tools/setup" && chmod +x "$1/tools/setup"
    cp include/weft/base.h "$1/include/weft/"
    local file
    for file in include/weft/view.hpp include/weft/adapters/uv.h examples/a.{c,h,cpp,cu,py} docs/a.{md,svg} docs/{performance,fsm,dask}/a.md \
        LICENSE README.md CONTRIBUTING.md SECURITY.md; do : >"$1/$file"; done
    mkdir "$1"/{fsm,base,reactor,transports,endpoints,collectives,resource,runtime}
}

# called SCRIPT ARGUMENT…: what make is asked for, in one line; `code` is how it ended
called() {
    : >"$log"
    code=0
    CALLED=$log PATH=$doubles:$PATH "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || code=$?
    tr '\n' ' ' <"$log" >"$scratch/asked"
}

test_a_tree_whose_path_has_a_space_builds() {
    local tree="$scratch/trees/a tree"
    tree "$tree"
    called "$tree/tools/build" --out "$tree/out/x" lib "$tree/out/x/tools/weft-run"
    expect "code: $(cat "$scratch/err")" $code 0
    expect asked "$(cat "$scratch/asked")" 'OUT=out/x lib out/x/tools/weft-run '
    (cd "$tree" && called tools/build --out out/y lib && expect asked "$(cat "$scratch/asked")" 'OUT=out/y lib ')
    called "$tree/tools/demo" -n 3 "$tree/README.md"
    has demo "$(cat "$scratch/out")" "^ran .*out/demo/tools/weft-run -n 3 out/demo/tools/wordcount $tree/README.md$"
    called "$tree/tools/install" "$scratch/trees/a prefix"
    expect "code: $(cat "$scratch/err")" $code 0
    [ -x "$scratch/trees/a prefix/bin/weft-run" ] && [ -e "$scratch/trees/a prefix/lib/libweft.so" ]
}

test_a_tree_behind_a_link_builds() {
    tree "$scratch/trees/real"
    ln -s real "$scratch/trees/link"
    (cd "$scratch/trees/link" && called tools/install "$scratch/trees/prefix" && expect "code: $(cat "$scratch/err")" $code 0)
    [ -x "$scratch/trees/prefix/bin/weft-run" ]
}

# Its objects are then as new there: CMake builds the package for Python so (python/CMakeLists.txt).
test_a_copy_of_the_tree_builds_into_the_same_folder() {
    local first
    tree "$scratch/trees/a"
    (cd "$scratch/trees/a" && called tools/build --out out/x lib out/x/tools/weft-run)
    first=$(cat "$scratch/asked")
    cp -r "$scratch/trees/a" "$scratch/trees/b"
    (cd / && called "$scratch/trees/b/tools/build" --out "$scratch/trees/a/out/x" lib "$scratch/trees/a/out/x/tools/weft-run")
    expect asked "$(cat "$scratch/asked")" "$first"
    called "$scratch/trees/a/tools/build" lib "$scratch/trees/a/out/build/tools/weft-run"
    expect 'without a folder' "$(cat "$scratch/asked")" 'lib out/build/tools/weft-run '
}

test_an_output_folder_with_a_space_is_refused() {
    tree "$scratch/trees/a"
    called "$scratch/trees/a/tools/build" --out "$scratch/trees/o u t" lib
    expect code $code 2
    has errors "$(cat "$scratch/err")" '^build: --out .*o u t: make builds nothing where a path has a space'
    expect asked "$(cat "$scratch/asked")" ''
    expect folders "$(ls "$scratch/trees")" a
}

test_uninstall_removes_what_install_made_and_nothing_else() {
    tree "$scratch/trees/all"
    local tree=$scratch/trees/all to=$scratch/trees/root
    called "$tree/tools/install" "$to"
    expect code "$code" 0
    has there "$(find "$to" -type f)" 'weft\.pc'
    : >"$to/lib/libother.so" && : >"$to/bin/weft-else" && : >"$to/include/other.h"
    called "$tree/tools/install" --uninstall "$to" -j 2
    expect "code with a setting" "$code" 2
    called "$tree/tools/install" --uninstall "$to"
    expect "code: $(cat "$scratch/err")" "$code" 0
    expect "asked of make" "$(cat "$scratch/asked")" ""
    expect left "$(cd "$to" && find . ! -type d | sort | tr '\n' ' ')" "./bin/weft-else ./include/other.h ./lib/libother.so "
    called "$tree/tools/install" --uninstall "$to"
    expect "code without it" "$code" 2
    has why "$(cat "$scratch/err")" "^install: Weft is not in "
}

# It may be there from an earlier run; what is asked for wrongly installs nothing of it.
test_install_refuses_what_it_does_not_know() {
    local tree=$scratch/trees/a arguments
    tree "$tree"
    called "$tree/tools/install" "$scratch/trees/before" -j 3 --rdma no --threads single
    expect "code: $(cat "$scratch/err")" $code 0
    expect asked "$(cat "$scratch/asked")" "OUT=$tree/out/install lib $(printf "$tree/out/install/tools/weft-%s " run info perf)"
    for arguments in '--out x' examples --bogus '-j' ''; do
        called "$tree/tools/install" "$scratch/trees/prefix" ${arguments:-""}
        expect "code of $arguments" $code 2
        has "errors of $arguments" "$(cat "$scratch/err")" '^install: '
    done
    called "$tree/tools/install" "$scratch/trees/prefix" --help
    expect 'code of help' $code 0
    has help "$(cat "$scratch/out")" '^tools/install PREFIX'
    expect prefix "$(ls "$scratch/trees")" $'a\nbefore'
}

test_a_relative_destination_is_the_callers() {
    local tree=$scratch/trees/a
    tree "$tree"
    mkdir "$scratch/trees/here"
    (cd "$scratch/trees/here" && DESTDIR=stage called "$tree/tools/install" /usr)
    [ -x "$scratch/trees/here/stage/usr/bin/weft-run" ]
    has pc "$(cat "$scratch/trees/here/stage/usr/lib/pkgconfig/weft.pc")" '^prefix=/usr$'
}

# image COMPILER: what a compiler for CUDA makes of the kernels, in the tree that was built before
image() {
    make -s -f tools/build.mk OUT="$scratch/built" NVCC="$1" RDMA= "$scratch/built/obj/transports/cuda/kernels/image.c" 2>/dev/null
    cat "$scratch/built/obj/transports/cuda/kernels/image.c"
}

test_a_compiler_for_cuda_that_is_there_later_is_used() {
    cat >"$scratch/nvcc" <<'NVCC'
#!/bin/bash
while [ "$1" != -o ]; do shift; done
printf AB >"$2"
NVCC
    chmod +x "$scratch/nvcc"
    mkdir -p "$scratch"/kernels/{tools,base,transports/cuda}
    cp -L tools/{build.mk,cuda_image} "$scratch/kernels/tools/" && cp -L base/half.h "$scratch/kernels/base/"
    cp -rL transports/cuda/kernels "$scratch/kernels/transports/cuda/" && cd "$scratch/kernels" || return
    has 'without one' "$(image '')" '^0};'
    has 'with one' "$(image "$scratch/nvcc")" '^65,66,$'
    code=0
    TMPDIR=/nonexistent tools/cuda_image "$scratch/image.c" 2>"$scratch/err" || code=$?
    expect 'nowhere to write' "$code $(ls "$scratch/image.c" 2>/dev/null)" '1 '
}

run_tests
