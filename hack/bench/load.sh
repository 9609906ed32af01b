#!/usr/bin/env bash
# How long many custom resources of all kinds take to become Ready on a real control plane, what that costs, and that
# nothing is written at rest. With BAD, so many more of each kind are there first that can never become Ready, as the
# names of their children are taken: the 99th percentile of the others is to stay within twice what it is without.
#   hack/bench/load.sh [PER_KIND] [SECONDS_AT_REST] [BAD]      300, 600 and 0 when left out
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
per_kind=${1:-300} rest=${2:-600} bad=${3:-0}

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
all_kinds() { # NAME-SUFFIX
  object samplecontroller.k8s.io/v1alpha1 Foo "foo-$1" "{deploymentName: foo-$1}"
  object myapp.timd.cn/v1 Myapp "myapp-$1" "{image: nginx, containerPort: 80, servicePort: 80, host: h$1.example.com}"
  object batch.schwarzeni.github.com/v1alpha1 AppService "appservice-$1" "{replicas: 1, image: nginx, ports: [{port: 80}]}"
  object myapp.tangx.in/v1 Redis "redis-$1" "{port: 6379, image: redis}"
  object jiajunhuang.com/v1 WebApp "webapp-$1" "{version: stable, replicas: 1}"
}
taken() { # NAME: a Deployment that is somebody else's
  object apps/v1 Deployment "$1" "{replicas: 0, selector: {matchLabels: {app: $1}}, template: {metadata: {labels: {app: $1}}, spec: {containers: [{name: c, image: i}]}}}"
}
for ((i = 0; i < per_kind; i++)); do all_kinds "$i"; done >"$work/all.yaml"
for ((i = 0; i < bad; i++)); do
  for kind in foo myapp appservice webapp; do taken "$kind-bad$i"; done
  object v1 Pod "redis-bad$i-0" "{containers: [{name: c, image: i}]}"
  all_kinds "bad$i"
done >"$work/bad.yaml"
if [[ $bad -gt 0 ]]; then
  "$kubectl" create -f "$work/bad.yaml" >/dev/null
  echo "$bad of each kind are there that cannot become Ready" >&2
fi

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
# From creation to Ready, of each; both stamps are whole seconds.
stamps() { "$kubectl" get windlass --no-headers -o custom-columns="$1,R:.status.conditions[?(@.type==\"Ready\")].status" | awk '$2 == "True" { print $1 }' | date -f - +%s; }
paste <(stamps 'A:.metadata.creationTimestamp') <(stamps 'B:.status.conditions[?(@.type=="Ready")].lastTransitionTime') |
  awk '{ print $2 - $1 }' | sort -n |
  awk '{ t[NR] = $1 } END { printf "from creation to Ready: median %d s, 99th percentile %d s, last %d s\n", t[int((NR + 1) / 2)], t[int(NR * 0.99 + 0.5)], t[NR] }'
sleep 10
echo "writes of objects: $(writes); processor time $(cpu) s; memory $(memory)"
by_resource
before=$(writes) cpu_before=$(cpu)
sleep "$rest"
echo "at rest for $rest s: $(($(writes) - before)) writes; processor time $(awk -v a="$cpu_before" -v b="$(cpu)" 'BEGIN { printf "%.2f", b - a }') s; memory $(memory)"
