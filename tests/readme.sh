#!/usr/bin/env bash
# Runs README.md as a reader would, in one shell, from the top of the repository:
#   <!-- ci -->         above ```sh: the commands are run
#   <!-- ci: FILE -->   above ```toml: the block is written to FILE
#   <!-- ci: shows -->  above ```text: the last commands printed these lines in this order, maybe
#                       with others between them; `...` in a line stands for any text
# A command that serves is put in the background by the block itself; what is left running is ended
# here.
set -euo pipefail
cd "$(dirname "$0")/.."

page="${1:-README.md}"
parts="$(mktemp -d)"
printed="$parts/printed"
finish() {
    local status=$? pid
    set +x
    if [ "$status" != 0 ] && [ -f "$printed" ]; then
        printf -- '-- printed:\n' >&2
        cat "$printed" >&2
    fi
    for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    rm -rf "$parts"
    exit "$status"
}
trap finish EXIT

# One file for each part, in the order of the page, and what to do with them.
awk -v parts="$parts" '
    function begin(verb, target) {
        inside = sprintf("%s/%03d", parts, ++count)
        printf "" >inside
        print verb, inside, target
    }
    /^<!-- ci -->$/ { mark = "run"; next }
    /^<!-- ci: shows -->$/ { mark = "shows"; next }
    /^<!-- ci: [^ ]+ -->$/ { mark = "write"; file = $3; next }
    /^```sh$/ && mark == "run" { begin("run"); runs++; mark = ""; next }
    /^```text$/ && mark == "shows" { begin("shows"); mark = ""; next }
    /^```toml$/ && mark == "write" { begin("write", file); mark = ""; next }
    /^```$/ && inside { close(inside); inside = ""; next }
    inside { print >inside; next }
    NF { if (mark) exit 3 }
    END { if (inside || mark || runs == 0) exit 3 }
' "$page" >"$parts/plan" || {
    echo "tests/readme.sh: $page has no block for CI, or one without its end or its mark" >&2
    exit 1
}

# Text as a pattern of bash, in which only `...` is special.
pattern() {
    local rest="$1" made=""
    while [[ "$rest" == *...* ]]; do
        [ -z "${rest%%...*}" ] || printf -v made '%s%q' "$made" "${rest%%...*}"
        made+="*"
        rest="${rest#*...}"
    done
    [ -z "$rest" ] || printf -v made '%s%q' "$made" "$rest"
    printf '%s' "$made"
}

shows() {
    local wanted line made
    exec 3<"$printed"
    while IFS= read -r wanted; do
        made="$(pattern "$wanted")"
        while :; do
            if ! IFS= read -r line <&3; then
                echo "tests/readme.sh: $page shows what was not printed: $wanted" >&2
                return 1
            fi
            # shellcheck disable=SC2053
            [[ "$line" == $made ]] && break
        done
    done <"$1"
    exec 3<&-
}

exec 9>&2
BASH_XTRACEFD=9
while read -r -u 8 verb part target; do
    case "$verb" in
        write)
            mkdir -p "$(dirname "$target")"
            cp "$part" "$target"
            ;;
        shows) shows "$part" ;;
        run)
            set -x
            # shellcheck disable=SC1090
            . "$part" >"$printed" 2>&1
            { set +x; } 2>/dev/null
            ;;
    esac
done 8<"$parts/plan"
