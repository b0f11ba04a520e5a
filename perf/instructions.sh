#!/bin/sh
# Instructions a request of the pure code, under valgrind, against perf/allowances.toml.
# Exit status 1 where an allowance is exceeded by more than 5 %.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 2; }
exec cargo bench --quiet --bench instructions --no-default-features
