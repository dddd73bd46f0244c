#!/usr/bin/env bash
# reports/golden holds what halage-sim says of three scenarios, byte for byte. With HALAGE_UPDATE_GOLDEN=1 they
# are written anew: read them before.
set -euo pipefail
cd "$HALAGE_SOURCE_DIR"

made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
for name in r1-1p3d r1-mixed; do
    "$HALAGE_BIN_DIR/halage-sim" run --quiet "scenarios/article/$name.yaml" >"$made/$name.txt"
done
"$HALAGE_BIN_DIR/halage-sim" sweep --quiet --requests 500 scenarios/ratio-sweep.yaml --out "$made/sweep" >/dev/null
mv "$made/sweep/sweep.tsv" "$made/ratio-sweep.tsv"
rm -r "$made/sweep"
if [ -n "${HALAGE_UPDATE_GOLDEN:-}" ]; then
    cp "$made"/* reports/golden
fi
diff -r reports/golden "$made"
wc -l reports/golden/*
