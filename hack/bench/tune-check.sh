#!/usr/bin/env bash
# Compares what `windlass tune sweep` predicts with a real control plane: new Foos that exist when the operator starts,
# with 1, 2, 4, 8 and 16 workers and latency added to each request by a proxy.
#   hack/bench/tune-check.sh [FOOS] [MILLISECONDS]       default: 300 40
# Prints, for each number of workers, how long it took until each Foo had its Deployment and its first status, Foos a
# second and the 99th percentile, measured and predicted. When the Deployments become available is not compared:
# kube-controller-manager's own limits decide that. Aims: throughput within 20 %, 99th percentile within 35 %. The model gets two figures from the first
# measured run: the mean time of a request and the operator's processor time for one.
set -euo pipefail
foos=${1:-300} added=${2:-40} all_workers="1 2 4 8 16"
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"
build_operator
cargo build --quiet --release --example delay-proxy
results=$work/measured
: >"$results"

# Prints when the operator wrote the first status of each Foo, in seconds after START, sorted.
times() { # AUDIT START
  python3 - "$1" "$2" <<'PYTHON'
import datetime, json, sys

first, start = {}, float(sys.argv[2])
for line in open(sys.argv[1]):
    entry = json.loads(line)
    what = entry.get("objectRef", {})
    if what.get("resource") == "foos" and what.get("subresource") == "status" and entry["responseStatus"]["code"] < 300:
        at = datetime.datetime.fromisoformat(entry["stageTimestamp"]).timestamp() - start
        first.setdefault(what["name"], at)
print("\n".join(f"{time:.3f}" for time in sorted(first.values())))
PYTHON
}

# Measures one number of workers on a control plane of its own.
measure() (
  workers=$1
  # shellcheck source=hack/bench/operator.sh
  source hack/bench/operator.sh
  start_control_plane
  for ((n = 0; n < foos; n++)); do
    object samplecontroller.k8s.io/v1alpha1 Foo "foo-$n" "{deploymentName: foo-$n, replicas: 1}"
  done >"$work/foos.yaml"
  "$kubectl" create -f "$work/foos.yaml" >/dev/null
  server=$(grep -oE '127\.0\.0\.1:[0-9]+' "$KUBECONFIG")
  coproc PROXY { exec "$target/release/examples/delay-proxy" "$server" "$added"; }
  read -r proxy <&"${PROXY[0]}"
  sed -E "s,127\.0\.0\.1:[0-9]+,$proxy," "$KUBECONFIG" >"$work/delayed"
  started=$EPOCHREALTIME
  "$windlass" run --kubeconfig="$work/delayed" --controllers=foo --workers="$workers" --audit-period=0 \
    --leader-elect=false --log-format=text --metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=0 >"$work/log" 2>&1 &
  operator=$!
  until_ready default "$foos"
  address=$(sed -nE '/paths="?\/metrics/ s,.*address="?([0-9.:]+).*,\1,p' "$work/log" | head -n 1)
  curl --silent --show-error --fail "http://$address/metrics" >"$work/metrics"
  times "$audit" "$started" >"$work/times"
  awk -v workers="$workers" -v hz="$(getconf CLK_TCK)" '
    FILENAME ~ /times$/ { time[++n] = $1 }
    FILENAME ~ /metrics$/ && /^rest_client_request_duration_seconds_sum/ && !/verb="GET"/ { seconds += $2 }
    FILENAME ~ /metrics$/ && /^rest_client_request_duration_seconds_count/ && !/verb="GET"/ { requests += $2 }
    FILENAME ~ /stat$/ { cpu = ($14 + $15) / hz }
    END {
      rank = int(n * 0.99); if (rank < 1) rank = 1
      printf "%d %.3f %.3f %.0f %.0f\n", workers, time[n], time[rank], seconds / requests * 1e6, cpu / requests * 1e6
    }' "$work/times" "$work/metrics" "/proc/$operator/stat"
)

for workers in $all_workers; do
  echo "Measuring $workers workers ..." >&2
  measure "$workers" | tee -a "$results" >&2
done
read -r _ _ _ request cpu <"$results"
cat >"$work/load.yaml" <<YAML
kinds: [foo]
objects: {count: $foos, converged: false}
convergedWhen: observed
server:
  latency: [{median: ${request}us}]
operator: {cpuPerRequest: ${cpu}us, cpus: $(nproc)}
YAML
"$windlass" tune sweep --load "$work/load.yaml" --workers "${all_workers// /,}" --output json >"$work/predicted"
python3 - "$results" "$work/predicted" "$foos" "$request" "$cpu" <<'PYTHON'
import json, sys

measured = [line.split() for line in open(sys.argv[1])]
trials = json.load(open(sys.argv[2]))["trials"]
foos = int(sys.argv[3])
print(f"a request takes {int(sys.argv[4]) / 1000:.1f} ms and {sys.argv[5]} us of the operator's processor time")
print(f"{'workers':>7} {'':>10} {'drained':>9} {'Foos/s':>7} {'p99':>9}")
missed = 0
for (workers, drained, p99, *_), trial in zip(measured, trials):
    drained, p99 = float(drained), float(p99)
    predicted, predicted99 = trial["drainSeconds"], trial["converged"]["p99"]
    rate, rate99 = drained / predicted - 1, predicted99 / p99 - 1
    print(f"{workers:>7} {'measured':>10} {drained:>7.2f} s {foos / drained:>7.1f} {p99:>7.2f} s")
    verdict = [f"throughput {rate:+.0%}" + ("" if abs(rate) <= 0.20 else " (aim 20 %: missed)"),
               f"p99 {rate99:+.0%}" + ("" if abs(rate99) <= 0.35 else " (aim 35 %: missed)")]
    missed += sum("missed" in part for part in verdict)
    print(f"{'':>7} {'predicted':>10} {predicted:>7.2f} s {foos / predicted:>7.1f} {predicted99:>7.2f} s  {', '.join(verdict)}")
print(f"{missed} of {2 * len(trials)} aims missed")
PYTHON
