#!/usr/bin/env bash
# Compares what `windlass tune sweep` predicts with a real control plane: new Foos that exist when the operator starts,
# with 1, 2, 4, 8 and 16 workers and latency added to each request by a proxy.
#   hack/bench/tune-check.sh [FOOS] [MILLISECONDS]       default: 300 40
#   hack/bench/tune-check.sh --controller client-go|controller-runtime [FOOS] [MILLISECONDS]
# The second form does the same for an operator in Go that is known by its metrics alone: ten new Foos a second, with 1, 2, 4
# and 8 workers, predicted from the run with two workers (--metrics), and from how syncs slowed each other down in those with
# one and with eight (--from).
# Prints, for each number of workers, how long it took until each Foo had its Deployment and its first status, Foos a
# second and the 99th percentile, measured and predicted. When the Deployments become available is not compared:
# kube-controller-manager's own limits decide that, and how many a second they allow is taken from the run with sixteen
# workers. Aims: throughput within 20 %, 99th percentile within 35 %. The model is calibrated from two scrapes of /metrics
# (`--from`), of the runs with one worker and with sixteen, and predicts the others.
# All share the processors of this machine.
set -euo pipefail
peer=''
if [[ ${1:-} == --controller ]]; then
  peer=${2:-} && shift 2
  case $peer in
    client-go | controller-runtime) ;;
    *) echo "hack/bench/tune-check.sh: --controller is client-go or controller-runtime, not '$peer'" >&2; exit 2 ;;
  esac
fi
foos=${1:-300} added=${2:-40} all_workers="1 2 4 8 16"
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"
build_operator
cargo build --quiet --release --example delay-proxy
results=$work/measured
: >"$results"

# Prints from the audit log how long after START the last first status came, the 99th percentile of the first ones, and how
# many Foos a second became Ready, which is the last status of each.
statuses_after() { # AUDIT START
  python3 - "$1" "$2" <<'PYTHON'
import datetime, json, sys

first, last, start = {}, {}, float(sys.argv[2])
for line in open(sys.argv[1]):
    entry = json.loads(line)
    what = entry.get("objectRef", {})
    if what.get("resource") == "foos" and what.get("subresource") == "status" and entry["responseStatus"]["code"] < 300:
        at = datetime.datetime.fromisoformat(entry["stageTimestamp"]).timestamp() - start
        first.setdefault(what["name"], at)
        last[what["name"]] = at
times = sorted(first.values())
print(f"{times[-1]:.3f} {times[max(0, int(len(times) * 0.99) - 1)]:.3f} {len(last) / max(last.values()):.2f}")
PYTHON
}

# Prints how many statuses were written up to a scrape.
statuses() { awk '/^rest_client_request_duration_seconds_count.*verb="PUT"/ { n += $2 } END { print n + 0 }' "$1"; }

# Starts the proxy, and writes a kubeconfig that leads through it.
start_proxy() {
  local at proxy
  at=$(grep -oE '127\.0\.0\.1:[0-9]+' "$KUBECONFIG")
  coproc PROXY { exec "$target/release/examples/delay-proxy" "$at" "$added"; }
  read -r proxy <&"${PROXY[0]}"
  sed -E "s,127\.0\.0\.1:[0-9]+,$proxy," "$KUBECONFIG" >"$work/delayed"
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
  start_proxy
  started=$EPOCHREALTIME
  "$windlass" run --kubeconfig="$work/delayed" --controllers=foo --workers="$workers" --audit-period=0 \
    --leader-elect=false --log-format=text --metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=0 >"$work/log" 2>&1 &
  operator=$!
  while address=$(sed -nE '/paths="?\/metrics/ s,.*address="?([0-9.:]+).*,\1,p' "$work/log" | head -n 1); [[ -z $address ]]; do
    sleep 0.1
  done
  # The last scrape while the workers are busy is the one to calibrate with.
  for ((tick = 0; tick < 3000; tick++)); do
    curl --silent --show-error --fail "http://$address/metrics" >"$scrapes/$workers"
    if (($(statuses "$scrapes/$workers") >= foos)); then break; fi
    sleep 0.2
  done
  until_ready default "$foos"
  echo "$workers $(statuses_after "$audit" "$started")"
)

# Prints measurements and predictions; the argument is the predicted time that is compared.
compare() { # FIELD
  python3 - "$results" "$work/predicted" "$foos" "$1" <<'PYTHON'
import json, sys

measured = [line.split() for line in open(sys.argv[1])]
trials = json.load(open(sys.argv[2]))["trials"]
foos, field = int(sys.argv[3]), sys.argv[4]
print(f"{'workers':>7} {'':>10} {'drained':>9} {'Foos/s':>7} {'p99':>9}")
missed = 0
for (workers, drained, p99, *_), trial in zip(measured, trials):
    drained, p99 = float(drained), float(p99)
    predicted, predicted99 = trial[field], trial["converged"]["p99"]
    rate, rate99 = drained / predicted - 1, predicted99 / p99 - 1
    print(f"{workers:>7} {'measured':>10} {drained:>7.2f} s {foos / drained:>7.1f} {p99:>7.2f} s")
    verdict = [f"throughput {rate:+.0%}" + ("" if abs(rate) <= 0.20 else " (aim 20 %: missed)"),
               f"p99 {rate99:+.0%}" + ("" if abs(rate99) <= 0.35 else " (aim 35 %: missed)")]
    missed += sum("missed" in part for part in verdict)
    print(f"{'':>7} {'predicted':>10} {predicted:>7.2f} s {foos / predicted:>7.1f} {predicted99:>7.2f} s  {', '.join(verdict)}")
print(f"{missed} of {2 * len(trials)} aims missed")
PYTHON
}

# Prints from the audit log how long after the first creation the last first status came, and the 99th percentile of the
# time between the two.
follow() { # AUDIT FOOS
  python3 - "$1" "$2" <<'PYTHON'
import datetime, json, sys

created, first = [], {}
for line in open(sys.argv[1]):
    entry = json.loads(line)
    what = entry.get("objectRef", {})
    if what.get("resource") != "foos" or entry["responseStatus"]["code"] >= 300:
        continue
    at = datetime.datetime.fromisoformat(entry["stageTimestamp"]).timestamp()
    if entry["verb"] == "create":
        # The audit log has no names for creates, but kubectl creates the objects in order.
        created.append(at)
    elif what.get("subresource") == "status":
        first.setdefault(what["name"], at)
if len(first) < int(sys.argv[2]):
    sys.exit(1)
took = sorted(at - created[int(name.removeprefix("foo-"))] for name, at in first.items())
print(f"{max(first.values()) - created[0]:.3f} {took[max(0, int(len(took) * 0.99) - 1)]:.3f}")
PYTHON
}

# Measures one number of workers of the peer; leaves a scrape for each second.
measure_peer() (
  workers=$1
  # shellcheck source=hack/bench/operator.sh
  source hack/bench/operator.sh
  start_control_plane
  start_proxy
  address=127.0.0.1:$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$target/peers/${peer//-/}" --kubeconfig="$work/delayed" --workers="$workers" --metrics="$address" >"$work/log" 2>&1 &
  operator=$!
  curl --silent --show-error --fail --retry 50 --retry-delay 1 --retry-connrefused "http://$address/metrics" >/dev/null
  sleep 2
  for ((second = 0; second < 600; second++)); do
    curl --silent --show-error --fail "http://$address/metrics" >"$scrapes/$workers-$(printf '%03d' "$second")"
    next=$(awk -v now="$EPOCHREALTIME" 'BEGIN { printf "%.3f", now + 1 }')
    if ((second * 10 < foos)); then
      for ((n = second * 10; n < second * 10 + 10; n++)); do
        object samplecontroller.k8s.io/v1alpha1 Foo "foo-$n" "{deploymentName: foo-$n, replicas: 1}"
      done | "$kubectl" create -f - >/dev/null
    elif follow "$audit" "$foos" >"$work/followed"; then
      break
    fi
    sleep "$(awk -v now="$EPOCHREALTIME" -v next_second="$next" 'BEGIN { left = next_second - now; print (left > 0 ? left : 0) }')"
  done
  echo "$workers $(<"$work/followed")"
)

scrapes=$(mktemp -d)
trap 'rm -rf "$scrapes"; stop' EXIT
if [[ -n $peer ]]; then
  mkdir -p "$target/peers"
  (cd hack/bench/peers/go && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$(cd ../../../.. && realpath "$target")/peers/" "./${peer//-/}")
  all_workers="1 2 4 8"
  for workers in $all_workers; do
    echo "Measuring $workers workers ..." >&2
    measure_peer "$workers" | tee -a "$results" >&2
  done
  files=("$scrapes"/2-*)
  # client-go's metrics do not say how many workers there are.
  known=()
  if [[ $peer == client-go ]]; then known=(--metrics-workers 2); fi
  calm=("$scrapes"/1-*) busy=("$scrapes"/8-*)
  "$windlass" tune sweep --metrics "${files[@]}" "${known[@]}" --for "$((${#files[@]} - 1))s" --metrics-objects "$foos" \
    --from "${calm[-1]}" "${busy[-1]}" --workers "${all_workers// /,}" --output json >"$work/predicted"
  compare seconds
  exit
fi

for workers in $all_workers; do
  echo "Measuring $workers workers ..." >&2
  measure "$workers" | tee -a "$results" >&2
done
{
  printf '%s\n' "kinds: [foo]" "objects: {count: $foos, converged: false}" "convergedWhen: observed" \
    "rolloutsPerSecond: $(awk 'END { print $4 }' "$results")"
  # Server and operator as calibrated.
  "$windlass" tune sweep --from "$scrapes/1" "$scrapes/16" --print-load | awk '/^[a-z]/ { wanted = /^(server|operator):/ } wanted'
} >"$work/load.yaml"
"$windlass" tune sweep --load "$work/load.yaml" --workers "${all_workers// /,}" --output json >"$work/predicted"
compare drainSeconds
