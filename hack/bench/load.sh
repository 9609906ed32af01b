#!/usr/bin/env bash
# Measures how long many custom resources of all kinds take to become Ready on a real control plane, what that costs,
# and how many writes follow at rest.
#   hack/bench/load.sh [PER_KIND] [SECONDS_AT_REST]      default: 300 600
set -euo pipefail
per_kind=${1:-300} rest=${2:-600}
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"
start_operator
so_many_of_each "$per_kind" >"$work/all.yaml"

# Prints the operator's writes from the audit log, without events.
written() { grep '"userAgent":"windlass/' "$audit" | grep -E '"verb":"(create|update|patch|delete)"' | grep -v '"resource":"events"' || true; }
writes() { written | wc -l; }
by_resource() { written | sed -E 's/.*"verb":"([^"]*)".*"resource":"([^"]*)".*/\1 \2/' | sort | uniq -c; }
cpu() { awk -v hz="$(getconf CLK_TCK)" '{ printf "%.1f", ($14 + $15) / hz }' "/proc/$operator/stat"; }
memory() { awk '/VmRSS|VmHWM/ { printf "%s %.1f MB  ", $1, $2 / 1024 }' "/proc/$operator/status"; }

total=$((per_kind * 5)) started=$EPOCHREALTIME
"$kubectl" create -f "$work/all.yaml" >/dev/null &
creating=$!
until_ready default "$total"
wait "$creating"
echo "$per_kind of each kind, $total together: Ready after $(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s"
sleep 10
echo "number; from creation to the first status: median, 99th percentile; to Ready: median, 99th percentile, last"
latencies default
echo "writes of objects: $(writes); processor time $(cpu) s; memory $(memory)"
by_resource
before=$(writes) cpu_before=$(cpu)
sleep "$rest"
echo "at rest for $rest s: $(($(writes) - before)) writes; processor time $(awk -v a="$cpu_before" -v b="$(cpu)" 'BEGIN { printf "%.2f", b - a }') s; memory $(memory)"
