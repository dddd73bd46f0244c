#!/usr/bin/env bash
# What is installed is enough for a project elsewhere, found by CMake and by pkg-config, and from wherever
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

cmake --install "$build" --prefix "$work/first" >"$work/log" 2>&1 || { cat "$work/log"; fail "cmake --install failed"; }
mv "$work/first" "$work/moved"
prefix=$work/moved
libraries=$(dirname "$(find "$prefix" -name libhalage.a)")

# by CMake
mkdir "$work/outside"
cp "$sources/tests/install/outside/CMakeLists.txt" "$sources/examples/pair.c" "$work/outside"
cmake -S "$work/outside" -B "$work/by-cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 &&
    cmake --build "$work/by-cmake" >>"$work/log" 2>&1 || { cat "$work/log"; fail "find_package(halage) failed"; }
"$work/by-cmake/outside" || fail "the program made by CMake failed"
"$work/by-cmake/outside" "$faults" || fail "the program made by CMake failed under faults"

# by pkg-config
export PKG_CONFIG_PATH=$libraries/pkgconfig
# shellcheck disable=SC2046 # words are what it gives
cc -std=c17 $(pkg-config --cflags halage) "$sources/examples/pair.c" $(pkg-config --libs halage) \
    -o "$work/by-pkg-config" || fail "pkg-config --libs halage is not enough"
"$work/by-pkg-config" "$faults" || fail "the program made by pkg-config failed"

# every header alone
find "$prefix/include/halage" -name '*.h' -printf '#include <halage/%P>\n' | sort >"$work/headers"
[ "$(wc -l <"$work/headers")" -ge 20 ] || fail "headers are missing"
while read -r line; do
    echo "$line" | cc -std=c17 -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags halage) -x c - ||
        fail "$line does not stand alone"
done <"$work/headers"

# programs and their manuals
for program in halage halage-sim; do
    [ -x "$prefix/bin/$program" ] || [ $program = halage-sim ] || fail "$program is missing"
    [ -f "$prefix/share/man/man1/$program.1" ] || fail "$program.1 is missing"
done
"$prefix/bin/halage" --version || fail "halage does not run"

# nothing says where it was built
if grep -rlF "$sources" "$prefix/include" "$prefix"/lib*/cmake "$libraries/pkgconfig" "$libraries/cmake" 2>/dev/null; then
    fail "these name the directory of the sources"
fi
echo "install: $(find "$prefix" -type f | wc -l) files, found by both ways"
