#!/usr/bin/env bash
# Judge the reference on the whole OpInfo suite and on the inputs of real models, on the CPU, and keep the records.
#
#   benchmarks/cpu.sh OUT [DTYPE...]
#
# OUT gets one folder for each dtype of the OpInfo suite, one for the traces and one for collectives, with run.json (command, environment, seed,
# wall_s) and summary.json.gz.
set -eu
out=${1:?usage: benchmarks/cpu.sh OUT [DTYPE...]}
shift
runs=$(mktemp -d)
export XDG_CACHE_HOME=$runs/cache

keep() {
    mkdir -p "$2"
    cp "$1/run.json" "$2/"
    gzip -9n <"$1/summary.json" >"$2/summary.json.gz"
}

for dtype in "${@:-bf16 f32}"; do
    for one in $dtype; do
        opsmith run --suite opinfo --backend aten --device cpu --dtype "$one" --timing off --json -o "$runs/$one" >/dev/null
        keep "$runs/$one" "$out/aten-$one"
    done
done

opsmith run --suite traces --backend aten --device cpu --top-inputs 2 --timing off --json -o "$runs/traces" >/dev/null
keep "$runs/traces" "$out/aten-traces"

opsmith run --suite distributed --backend aten --device cpu --ranks 2,3,4 --dtype f64,f32,f16,bf16,i64,i32,i8,u8,b8 --timing off \
    --json -o "$runs/distributed" >/dev/null
keep "$runs/distributed" "$out/aten-distributed"
