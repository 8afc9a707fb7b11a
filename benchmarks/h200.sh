#!/usr/bin/env bash
# Judge the CUDA bf16 OpInfo suite and the inputs of real models from a cold start and keep the records.
#
#   benchmarks/h200.sh OUT [NAME...]
#
# The names select records; all are made without one. OUT gets one folder a run with run.json (command, environment, seed, wall_s),
# summary.json.gz and not-passed.jsonl.gz.
# The caches are emptied first, so that compiling counts.
set -u
out=$(realpath -m "${1:?usage: benchmarks/h200.sh OUT [NAME...]}")
shift
selected=" $* "
cd "$(dirname "$0")/.."
runs=$(mktemp -d)
export XDG_CACHE_HOME=$runs/cache

judge() {
    local name=$1
    shift
    [[ $selected == "  " || $selected == *" $name "* ]] || return 0
    local start=$EPOCHREALTIME
    opsmith run "$@" --device cuda -o "$runs/$name" >"$runs/$name.txt" 2>"$runs/$name.err"
    local status=$?
    echo "== $name: exit status $status, $(python3 -c "print(round($EPOCHREALTIME - $start, 1))") s from the command to its end"
    head -9 "$runs/$name.txt"
    tail -4 "$runs/$name.err" | cut -c1-300
    mkdir -p "$out/$name"
    cp "$runs/$name/run.json" "$out/$name/"
    gzip -9n <"$runs/$name/summary.json" >"$out/$name/summary.json.gz"
    grep -v '"status":"PASSED"' "$runs/$name/verdicts.jsonl" | gzip >"$out/$name/not-passed.jsonl.gz"
}

judge aten-bf16 --suite opinfo --backend aten --dtype bf16 --timing off
judge opsmith-bf16 --suite opinfo --backend opsmith --dtype bf16 --timing off
judge illegal-access-bf16 --suite opinfo --backend tests/gpu/illegal_access --ops relu.default,exp.default --dtype bf16 --timing off
judge opsmith-timed-bf16 --suite smoke --backend opsmith --dtype bf16 --timing quick
judge flag-gems-bf16 --suite smoke --backend flag_gems --dtype bf16 --timing off
judge aten-traces --suite traces --backend aten --top-inputs 2 --timing off
