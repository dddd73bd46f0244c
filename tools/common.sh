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

# Tests that passed, failed and were skipped, so far.
passed=0
failed=0
skipped=0

# Add those of a run of ctest: its JUnit report and its exit status.
count_tests()
{
    local report=$1 status=$2 counts run_passed run_failed run_skipped

    counts=$(tools/count_tests.py "$report") || counts="0 0 0"
    read -r run_passed run_failed run_skipped <<<"$counts"
    if [ "$status" -ne 0 ] && [ "$run_failed" -eq 0 ]; then
        run_failed=1 # ctest itself failed, or found no test
    fi
    passed=$((passed + run_passed))
    failed=$((failed + run_failed))
    skipped=$((skipped + run_skipped))
}

# Say what was counted, and end with status 1 if any failed.
finish()
{
    if [ "$skipped" -gt 0 ]; then
        echo "tools/${0##*/}: $skipped skipped"
    fi
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
