#!/usr/bin/env bash
# Measures what a viewer of the live page costs: runs the demo with changes at a steady rate, and compares its processor
# time in windows with and without a viewer, in turns. Prints passes per second, and shares of one core.
#   hack/bench/page.sh [CHANGES_PER_SECOND [ROUNDS]]    default: 300 changes, 20 rounds of two windows of 3 s
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

rate=${1:-300} rounds=${2:-20} window=3
cargo build --quiet --release --locked
work=$(mktemp -d)
: >"$work/out"
"${CARGO_TARGET_DIR:-target}/release/windlass" demo >"$work/out" 2>&1 &
demo=$!
trap 'kill -INT $demo 2>/dev/null; wait $demo 2>/dev/null; rm -rf "$work"' EXIT

until page=$(grep -o 'http://[^ ]*#token=[0-9a-f]*' "$work/out"); do
  kill -0 "$demo"
  sleep 0.1
done
url=${page%%#*} token=${page##*=}
switch() { curl --silent --show-error --fail --header "X-Windlass-Token: $token" --data "$1" "${url}debug/switch" >/dev/null; }
until curl --silent --output /dev/null "${url}debug"; do sleep 0.1; done
switch '{"workers":8}'
switch '{"create":100}'
switch "{\"churn\":{\"rate\":$rate,\"hot\":false}}"
sleep 10

# User and system time of the demo so far, in ticks.
ticks() { awk '{ print $14 + $15 }' "/proc/$demo/stat"; }
# The number of passes so far, from a single snapshot.
passes() {
  # curl is ended once the first event has come.
  { curl --silent --no-buffer "${url}debug/stream" || true; } | sed -n '/^data: /{s/"passes":{"count":/\n&/g;p;q}' |
    awk -F: '/^"passes"/ { sub(/,.*/, "", $3); n += $3 } END { print n }'
}

first=$(passes) began=$(date +%s.%N)
for ((round = 0; round < rounds; round++)); do
  from=$(ticks)
  sleep "$window"
  without=$(($(ticks) - from))
  curl --silent --no-buffer "${url}debug/stream" >/dev/null &
  viewer=$!
  from=$(ticks)
  sleep "$window"
  with=$(($(ticks) - from))
  kill "$viewer"
  wait "$viewer" 2>/dev/null || true
  echo "$without $with"
done >"$work/rounds"
last=$(passes) ended=$(date +%s.%N)
awk -v hertz="$(getconf CLK_TCK)" -v window="$window" -v passes="$((last - first))" -v began="$began" -v ended="$ended" '
  { share = 100 / hertz / window; without += $1 * share; with += $2 * share; d = ($2 - $1) * share; sum += d; squares += d * d }
  END {
    mean = sum / NR
    printf "passes per second: %.0f\n", passes / (ended - began)
    printf "share of one core: %.1f %% without a viewer, %.1f %% with one\n", without / NR, with / NR
    printf "a viewer costs %.2f %% of one core, with a standard error of %.2f\n", mean, sqrt((squares / NR - mean * mean) / (NR - 1))
  }' "$work/rounds"
