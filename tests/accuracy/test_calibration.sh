#!/usr/bin/env bash
# The tables that the program carries are what tools/calibrate makes of HALAGE_DATA (skipped without),
# and small: they are no copy of their sources.
set -euo pipefail
cd "$HALAGE_SOURCE_DIR"

if [ -z "${HALAGE_DATA:-}" ]; then
    echo "HALAGE_DATA is not set: name the directory that holds kernels/"
    exit 77
fi
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
tools/calibrate "$made" >/dev/null
cp sim/calibration/constants.tsv "$made" # kept by hand
diff -r "$made" sim/calibration
bytes=$(cat sim/calibration/*.tsv | wc -c)
echo "$bytes bytes"
[ "$bytes" -le 300000 ]
for file in sim/calibration/*.tsv; do
    grep -q '^# .*\(Source\|@\)' "$file" || { echo "$file: names no source"; exit 1; }
done
