#!/usr/bin/env bash
# Runs the commands of README.md as a reader would: every ```sh block with the line `<!-- ci -->`
# right above it, in order, in one shell, from the top of the repository. A command that serves is
# put in the background by the block itself; what is left running is ended here.
set -euo pipefail
cd "$(dirname "$0")/.."

page="${1:-README.md}"
script="$(mktemp)"
finish() {
    local status=$? pid
    for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    rm -f "$script"
    exit "$status"
}
trap finish EXIT

awk '
    /^<!-- ci -->$/ { marked = 1; next }
    /^```sh$/ && marked { inside = 1; marked = 0; blocks++; next }
    /^```$/ && inside { inside = 0; next }
    inside { print; next }
    NF { marked = 0 }
    END { if (inside || blocks == 0) exit 3 }
' "$page" >"$script" || {
    echo "tests/readme.sh: $page has no block for CI, or one without its end" >&2
    exit 1
}

set -x
# shellcheck disable=SC1090
. "$script"
