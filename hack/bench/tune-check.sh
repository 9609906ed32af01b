#!/usr/bin/env bash
# Compares `windlass tune sweep` with a real control plane: the same Foos, workers and latency, predicted and measured.
#   hack/bench/tune-check.sh [FOOS] [DELAY_MS] [WORKERS...]      default: 400 20 1 2 4 8 16
# A proxy on loopback adds the delay to each request. Latencies and processor time for the prediction are those of the
# first row; the others are predicted from them. A Foo is done when its status has the generation of its spec.
set -euo pipefail
foos=${1:-400} delay=${2:-20}
shift $(($# < 2 ? $# : 2))
workers=("${@:-}")
[[ -n ${workers[0]} ]] || workers=(1 2 4 8 16)
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"
start_control_plane

# Starts the proxy; it prints its port, and ends with its standard input.
server=$("$kubectl" config view --raw --minify -o 'jsonpath={.clusters[0].cluster.server}')
coproc PROXY { exec python3 hack/bench/delay.py "${server##*/}" "$delay"; }
read -r port <&"${PROXY[0]}"
sed "s|$server|https://127.0.0.1:$port|" "$KUBECONFIG" >"$work/through-proxy"

# Prints, for the first status of each Foo in a namespace: Foos per second, and the 99th percentile, from the first request.
measured() { # NAMESPACE
  python3 - "$audit" "$1" "$foos" <<'PYTHON'
import datetime, json, sys

book, namespace, foos = sys.argv[1], sys.argv[2], int(sys.argv[3])
begun, done = None, {}
for line in open(book):
    entry = json.loads(line)
    what = entry.get("objectRef", {})
    if not entry["userAgent"].startswith("windlass/") or what.get("namespace") != namespace:
        continue
    at = datetime.datetime.fromisoformat(entry["stageTimestamp"])
    begun = begun or datetime.datetime.fromisoformat(entry["requestReceivedTimestamp"])
    is_status = what.get("resource") == "foos" and what.get("subresource") == "status"
    if is_status and entry["responseStatus"]["code"] < 300:
        done.setdefault(what["name"], (at - begun).total_seconds())
times = sorted(done.values())
assert len(times) == foos, f"{len(times)} of {foos} Foos have a status"
print(f"{foos / times[-1]:.2f} {times[min(foos - 1, int(foos * 0.99))]:.3f}")
PYTHON
}

for count in "${workers[@]}"; do
  namespace=workers-$count
  "$kubectl" create namespace "$namespace" >/dev/null
  for ((number = 0; number < foos; number++)); do
    object samplecontroller.k8s.io/v1alpha1 Foo "foo-$number" "{deploymentName: foo-$number, replicas: 0}"
  done | "$kubectl" create --namespace="$namespace" -f - >/dev/null
  "$windlass" run --kubeconfig="$work/through-proxy" --namespace="$namespace" --controllers=foo --workers="$count" \
    --leader-elect=false --metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=0 --audit-period=0 \
    --log-format=json >"$work/log-$count" 2>&1 &
  operator=$!
  without_status() {
    "$kubectl" get foos --namespace="$namespace" --no-headers -o custom-columns='G:.status.observedGeneration' | grep -c '<none>' || true
  }
  while [[ $(without_status) != 0 ]]; do
    kill -0 "$operator" || { tail -5 "$work/log-$count"; exit 1; }
    sleep 1
  done
  if [[ $count == "${workers[0]}" ]]; then
    address=$(sed -nE 's/.*"address":"(127[^"]*)".*/\1/p' "$work/log-$count" | head -1)
    curl --silent --fail "http://$address/metrics" >"$work/metrics"
  fi
  kill "$operator"
  wait "$operator" || true
  operator=''
  measured "$namespace" >"$work/measured-$count"
  echo "measured with $count workers: $(cat "$work/measured-$count")" >&2
done

# The load of the prediction: mean latencies and processor time per request of the first row.
python3 - "$work/metrics" "$foos" >"$work/load.yaml" <<'PYTHON'
import collections, re, sys

sums = collections.Counter()
for line in open(sys.argv[1]):
    if found := re.match(r'(\w+)(?:\{(.*?)\})? (\S+)', line):
        name, labels, value = found.groups()
        sums[name, dict(re.findall(r'(\w+)="(.*?)"', labels or "")).get("verb", "")] += float(value)
verbs = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
rules, requests = [], 0
for method, verb in verbs.items():
    count = sums["rest_client_request_duration_seconds_count", method]
    requests += count
    if count:
        mean = sums["rest_client_request_duration_seconds_sum", method] / count
        rules.append(f"  - {{verb: {verb}, median: {mean * 1e6:.0f}us}}")
cpu = sums["process_cpu_seconds_total", ""] / requests
rules.append("  - {median: 25ms}")
print(f"objects: {{count: {sys.argv[2]}}}\nconvergedWhen: observed\nserver:\n  latency:")
print("\n".join(rules))
print(f"operator: {{cpuPerRequest: {cpu * 1e6:.0f}us, cpus: 2}}")
PYTHON
cat "$work/load.yaml" >&2
list=$(IFS=,; echo "${workers[*]}")
"$windlass" tune sweep --load="$work/load.yaml" --workers="$list" --output=json >"$work/predicted.json"
python3 - "$work" "${workers[@]}" <<'PYTHON'
import json, sys

work, workers = sys.argv[1], sys.argv[2:]
trials = {trial["setting"][-1]["value"]: trial for trial in json.load(open(f"{work}/predicted.json"))["trials"]}
print(f"{'workers':>8} {'Foos/s':>8} {'predicted':>10} {'':>6} {'p99':>8} {'predicted':>10}")
for count in workers:
    rate, p99 = map(float, open(f"{work}/measured-{count}").read().split())
    trial = trials[count]
    predicted = trial["changes"] / trial["converged"]["max"], trial["converged"]["p99"]
    print(f"{count:>8} {rate:8.1f} {predicted[0]:10.1f} {predicted[0] / rate - 1:+6.0%} {p99:7.2f}s {predicted[1]:9.2f}s {predicted[1] / p99 - 1:+6.0%}")
PYTHON
