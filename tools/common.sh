# Shared by the scripts of this directory, which source it from the root of the sources.

die()
{
    echo "tools/${0##*/}: $*" >&2
    exit 1
}

bad_option()
{
    echo "tools/${0##*/}: unknown option $1 (see --help)" >&2
    exit 2
}

# Configure and build one preset, or one target of it. Prints little when all is well, on a terminal how far it
# is; returns non-zero on a failure.
build_preset()
{
    local preset=$1 log=build/$1-configure.log quiet=--quiet

    echo "== build $preset"
    mkdir -p build
    if ! cmake --preset "$preset" >"$log" 2>&1; then
        cat "$log" >&2
        return 1
    fi
    if [ -t 1 ]; then
        quiet=
    fi
    cmake --build --preset "$preset" ${2:+--target "$2"} -- $quiet
}
