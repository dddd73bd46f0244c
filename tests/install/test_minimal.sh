#!/usr/bin/env bash
# Preset minimal needs libc and nothing else: it configures without pkg-config, builds, runs, installs, and what it
# leaves undefined is libc's. usage: test_minimal.sh SOURCES
set -euo pipefail

sources=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    [ ! -s "$work/log" ] || cat "$work/log" >&2
    echo "minimal: $1" >&2
    exit 1
}

printf '#!/bin/sh\necho "$*" >>"%s"\nexit 1\n' "$work/asked" >"$work/pkg-config"
chmod +x "$work/pkg-config"
export PKG_CONFIG=$work/pkg-config
cd "$sources"
cmake --preset minimal -B "$work/build" -DCMAKE_BUILD_TYPE=None '-DCMAKE_C_FLAGS=-O0 -Wno-format-truncation' \
    >"$work/log" 2>&1 || fail "it cannot be configured"
[ ! -e "$work/asked" ] || fail "pkg-config was asked: $(head -n 1 "$work/asked")"
cmake --build "$work/build" >"$work/log" 2>&1 || fail "it cannot be built"

# it works, also when things go wrong
"$work/build/bin/example-loop" 'reorder ppm 300000
delay ppm 300000 span 1us..100us
partial ppm 300000' >"$work/log" || fail "the example failed"
cat "$work/log"

# libc alone: the program by what it loads, the archives by what they leave undefined
program=$work/build/bin/example-loop
needed=$(readelf -d "$program" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
[ "$needed" = libc.so.6 ] || fail "the example loads: $needed"
libc=$(ldd "$program" | sed -n 's/.*libc\.so\.6 => \([^ ]*\).*/\1/p')
nm -D --defined-only "$libc" | sed 's/.* //; s/@.*//' | sort -u >"$work/libc"
cmake --install "$work/build" --prefix "$work/installed" >"$work/log" || fail "it cannot be installed"
archives=("$work"/installed/lib*/libhalage*.a)
for part in halage halage_loop halage_fault; do
    ls "$work"/installed/lib*/lib$part.a >/dev/null 2>&1 || fail "lib$part.a is not installed"
done
nm --defined-only "${archives[@]}" | sed -n 's/^[0-9a-f]* [A-Z] //p' | sort -u >"$work/ours"
foreign=$(nm -u "${archives[@]}" | sed -n 's/^ *U //p' | sort -u | comm -23 - "$work/ours" | comm -23 - "$work/libc" |
    grep -v '^_GLOBAL_OFFSET_TABLE_$' || true)
[ -z "$foreign" ] || fail "these are not libc's: $foreign"

# a project elsewhere finds it, without pkg-config too
cp "$sources"/tests/install/outside/* "$work"/installed/share/doc/halage/examples/*.c "$work"
cmake -S "$work" -B "$work/outside" -G Ninja -DCMAKE_PREFIX_PATH="$work/installed" '-DPARTS=loop;fault' >"$work/log" 2>&1 &&
    cmake --build "$work/outside" --target loop >>"$work/log" 2>&1 || fail "it cannot be used by CMake"
[ ! -e "$work/asked" ] || fail "pkg-config was asked by a project that uses it: $(head -n 1 "$work/asked")"

# nothing is installed of what is not built: no manual of a program, no example of another part, no function that
# cannot be linked, which inline ones can
installed=$work/installed
for left in share/man/man1 share/doc/halage/examples/pair.c share/doc/halage/examples/layouts \
    share/doc/halage/simulation.md include/halage/messenger.h; do
    [ ! -e "$installed/$left" ] || fail "$left is installed, which is not built"
done
for there in share/man/man3/hlg_pump_create.3 share/doc/halage/examples/loop.c share/doc/halage/protocol.md; do
    [ -e "$installed/$there" ] || fail "$there is not installed"
done
"$sources/tests/install/see_also.sh" "$installed/share/man" || fail "a manual refers to one that is not installed"
{
    find "$installed/include/halage" -name '*.h' -printf '#include <halage/%P>\n' | sort
    echo 'typedef void (*function)(void);'
    echo 'int main(void) { volatile function f;'
    find "$installed/share/man/man3" -name 'hlg_*.3' -printf '%f\n' | sort | sed 's/\(.*\)\.3/    f = (function)\1;/'
    echo '    return f == 0; }'
} >"$work/all.c"
gcc -std=c17 "-I$installed/include" "$work/all.c" -Wl,--start-group "${archives[@]}" -Wl,--end-group -o "$work/all" \
    2>"$work/log" || fail "not every function that has a manual can be linked"
echo "minimal: ${#archives[@]} archives, libc alone"
