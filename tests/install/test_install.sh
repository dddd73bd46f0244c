#!/usr/bin/env bash
# What is installed is enough for a project elsewhere, found by CMake and by pkg-config, in parts, and from wherever
# it was moved to. usage: test_install.sh BUILD SOURCES
set -euo pipefail

build=$1
sources=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults='delay ppm 200000 span 10us..1ms
partial ppm 200000'

fail()
{
    echo "install: $1" >&2
    exit 1
}

# needs PROGRAM: the names of the libraries that it loads
needs()
{
    readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'
}

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; fail "cmake --install failed"; }
mv "$work/first" "$work/moved"
prefix=$work/moved
libraries=$(dirname "$(find "$prefix" -name libhalage.a)")
parts=$(basename -a "$libraries"/libhalage_*.a | sed 's/libhalage_\(.*\)\.a/\1/' | tr '\n' ' ')

# by CMake: with all parts, and with the two that need libc alone; and no part that there is not
mkdir "$work/outside"
cp "$sources"/tests/install/outside/* "$prefix"/share/doc/halage/examples/*.c "$work/outside"
configure()
{
    cmake -S "$work/outside" -B "$work/$1" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DPARTS="$2" >"$work/log" 2>&1
}
configure by-cmake "${parts// /;}" && cmake --build "$work/by-cmake" >>"$work/log" 2>&1 || {
    cat "$work/log"
    fail "find_package(halage COMPONENTS $parts) failed"
}
"$work/by-cmake/pair" || fail "the pair made by CMake failed"
"$work/by-cmake/pair" "$faults" || fail "the pair made by CMake failed under faults"
"$work/by-cmake/loop" || fail "the loop made by CMake failed"
"$work/by-cmake/gpu" || [ $? -eq 77 ] || fail "the GPU example made by CMake failed"
count=0
for part in exporter ofi simgrid; do
    case " $parts " in *" $part "*) count=$((count + 1)) ;; esac
done
[ "$("$work/by-cmake/parts")" = "$count parts" ] || fail "not all of $parts were found"
configure by-cmake-loop "loop;fault" && cmake --build "$work/by-cmake-loop" --target loop >>"$work/log" 2>&1 || {
    cat "$work/log"
    fail "find_package(halage COMPONENTS loop fault) failed"
}
[ "$(needs "$work/by-cmake-loop/loop")" = libc.so.6 ] || fail "loop and fault need more than libc"
if configure by-cmake-none "nonsense"; then
    fail "find_package(halage COMPONENTS nonsense) succeeded"
fi
tr -s '\n ' '  ' <"$work/log" | grep -q "halage was built without the component nonsense; it has: halage" || {
    cat "$work/log"
    fail "a component that is not there is not named"
}

# by pkg-config
export PKG_CONFIG_PATH=$libraries/pkgconfig
modules=halage
for part in $parts; do
    modules+=" halage-$part"
done
# by_pkg_config SOURCE MODULE ...
by_pkg_config()
{
    local source=$1
    shift
    # shellcheck disable=SC2046 # words are what it gives
    cc -std=c17 "-DWITH_${1#halage-}" $(pkg-config --cflags "$@") "$work/outside/$source" $(pkg-config --libs "$@") -o "$work/by-pkg-config" ||
        fail "pkg-config --libs $* is not enough"
}
by_pkg_config pair.c halage-ofi halage-fault
"$work/by-pkg-config" "$faults" || fail "the pair made by pkg-config failed"
by_pkg_config loop.c halage-loop halage-fault
"$work/by-pkg-config" || fail "the loop made by pkg-config failed"
for part in $parts; do
    pkg-config --exists --print-errors "halage-$part" || fail "halage-$part.pc is missing or wrong"
    by_pkg_config parts.c "halage-$part"
done

# names of the parts among each other stay within an archive
seen=$(nm --defined-only "$libraries"/libhalage*.a | sed -n 's/^[0-9a-f]* [A-Z] //p' | grep -Ev '^(hlg_|_Z|DW\.)' || true)
[ -z "$seen" ] || fail "these names of ours may meet an engine's: $seen"

# every header alone
find "$prefix/include/halage" -name '*.h' -printf '#include <halage/%P>\n' | sort >"$work/headers"
[ "$(wc -l <"$work/headers")" -ge 20 ] || fail "headers are missing"
while read -r line; do
    echo "$line" | cc -std=c17 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags halage) -x c - ||
        fail "$line does not stand alone"
done <"$work/headers"

# C++: all headers at once, and every function that has a manual can be linked by its name in C
{
    cat "$work/headers"
    echo 'static void *const functions[] = {'
    find "$prefix/share/man/man3" -name 'hlg_*.3' -printf '    (void *)%f,\n' | sed 's/\.3,/,/' | sort
    echo '};'
    echo 'int main() { char byte; if (HLG_MEM_HOST(&byte, 1).bytes != 1) return 1; for (void *f : functions) if (f == nullptr) return 1; return 0; }'
} >"$work/all.cpp"
# shellcheck disable=SC2046,SC2086 # words are what it gives
g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags $modules) "$work/all.cpp" \
    $(pkg-config --libs $modules) -o "$work/all" || fail "the headers cannot be used from C++"
"$work/all" || fail "the program in C++ failed"

# programs and their manuals
for program in halage halage-prefill halage-decode halage-sim; do
    [ -x "$prefix/bin/$program" ] || fail "$program is missing"
    [ -f "$prefix/share/man/man1/$program.1" ] || fail "$program.1 is missing"
done
for page in hlg_messenger_create hlg_ofi_open hlg_fault_script; do
    link=$(cat "$prefix/share/man/man3/$page.3") || fail "$page.3 is missing"
    [ -f "$prefix/share/man/${link#.so }" ] || fail "$page.3 leads to nothing: $link"
done
"$sources/tests/install/see_also.sh" "$prefix/share/man" || fail "a manual refers to one that is not installed"
"$prefix/bin/halage" --version || fail "halage does not run"

# nothing says where it was built
if grep -rlF "$sources" "$prefix/include" "$prefix"/lib*/cmake "$libraries/pkgconfig" "$libraries/cmake" 2>/dev/null; then
    fail "these name the directory of the sources"
fi
echo "install: $(find "$prefix" -type f | wc -l) files, found by both ways; parts $parts"
