#!/usr/bin/env bash
# How long many custom resources of all kinds take to become Ready on a real control plane, what that costs, and that
# nothing is written at rest.
#   hack/bench/load.sh [PER_KIND] [SECONDS_AT_REST]      300 and 600 when left out
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
per_kind=${1:-300} rest=${2:-600}

echo "Building windlass (release) and the launcher ..." >&2
cargo build --quiet --release --bin windlass
cargo build --quiet --example control-plane
target=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d)

set -m
coproc LAUNCHER { exec "$target/debug/examples/control-plane" serve; }
read -r ready <&"${LAUNCHER[0]}" || { echo "The control plane did not start; its message is above." >&2; exit 1; }
value() { sed -E "s/.*\"$1\":\"([^\"]*)\".*/\1/" <<<"$ready"; }
export KUBECONFIG
KUBECONFIG=$(value kubeconfig)
kubectl=$(value kubectl) audit=$(value auditLog)
launcher=$LAUNCHER_PID lifeline=${LAUNCHER[1]} operator=
stop() {
  trap - EXIT INT TERM
  if [[ -n $operator ]]; then kill "$operator" 2>/dev/null || true; wait "$operator" 2>/dev/null || true; fi
  exec {lifeline}>&-
  wait "$launcher" 2>/dev/null || true
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

"$target/release/windlass" crds | "$kubectl" apply -f - >/dev/null
"$kubectl" wait --for=condition=Established crd --all --timeout=60s >/dev/null
"$target/release/windlass" run --kubeconfig="$KUBECONFIG" --metrics-bind-address=0 --health-probe-bind-address=0 \
  --audit-period=0 --log-format=json >"$work/log" 2>&1 &
operator=$!

object() { # GROUP/VERSION KIND NAME SPEC
  printf 'apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n---\n' "$1" "$2" "$3" "$4"
}
for ((i = 0; i < per_kind; i++)); do
  object samplecontroller.k8s.io/v1alpha1 Foo "foo-$i" "{deploymentName: foo-$i}"
  object myapp.timd.cn/v1 Myapp "myapp-$i" "{image: nginx, containerPort: 80, servicePort: 80, host: h$i.example.com}"
  object batch.schwarzeni.github.com/v1alpha1 AppService "appservice-$i" "{replicas: 1, image: nginx, ports: [{port: 80}]}"
  object myapp.tangx.in/v1 Redis "redis-$i" "{port: 6379, image: redis}"
  object jiajunhuang.com/v1 WebApp "webapp-$i" "{version: stable, replicas: 1}"
done >"$work/all.yaml"

# What the operator has written, by the server's own book; events are not objects that anybody waits for.
written() { grep '"userAgent":"windlass/' "$audit" | grep -E '"verb":"(create|update|patch|delete)"' | grep -v '"resource":"events"' || true; }
writes() { written | wc -l; }
by_resource() { written | sed -E 's/.*"verb":"([^"]*)".*"resource":"([^"]*)".*/\1 \2/' | sort | uniq -c; }
cpu() { awk -v hz="$(getconf CLK_TCK)" '{ printf "%.1f", ($14 + $15) / hz }' "/proc/$operator/stat"; }
memory() { awk '/VmRSS|VmHWM/ { printf "%s %.1f MB  ", $1, $2 / 1024 }' "/proc/$operator/status"; }
ready_count() { "$kubectl" get windlass --all-namespaces --no-headers -o custom-columns='R:.status.conditions[?(@.type=="Ready")].status' | grep -c True || true; }

total=$((per_kind * 5))
started=$EPOCHREALTIME
since() { awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
"$kubectl" create -f "$work/all.yaml" >/dev/null &
creating=$!
while sleep 2; do
  count=$(ready_count)
  echo "$(since) s: $count of $total Ready" >&2
  [[ $count -lt $total ]] || break
  kill -0 "$operator" || { tail -5 "$work/log"; exit 1; }
done
wait "$creating"
echo "$per_kind of each kind, $total together: Ready after $(since) s"
sleep 10
echo "writes of objects: $(writes); processor time $(cpu) s; memory $(memory)"
by_resource
before=$(writes) cpu_before=$(cpu)
sleep "$rest"
echo "at rest for $rest s: $(($(writes) - before)) writes; processor time $(awk -v a="$cpu_before" -v b="$(cpu)" 'BEGIN { printf "%.2f", b - a }') s; memory $(memory)"
