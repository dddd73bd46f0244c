#!/usr/bin/env bash
# Every manual of halage that an installed one refers to is installed, too. usage: see_also.sh MAN
set -euo pipefail

missing=0
while read -r name section; do
    if [ ! -f "$1/man$section/$name.$section" ]; then
        echo "see_also: $name($section) is not installed" >&2
        missing=1
    fi
done < <(grep -rhoE '\bhalage[a-z0-9_\\-]* ?\([13]\)' "$1" | tr -d '\\ )' | tr '(' ' ' | sort -u)
exit $missing
