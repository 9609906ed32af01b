#!/usr/bin/env bash
# Measures what lists cost, in pages or streamed, plain or compressed: how long a standby takes to fill its caches on one
# real control plane, in the cluster and over a link of 50 ms and 20 Mbit/s.
#   hack/bench/lists.sh [FOOS] [ROUNDS]       default: 3000 3
# Prints for each case the medians: time until ready, bytes received for the lists, and processor time of the operator and
# of the API server. Streams are compressed since Kubernetes 1.37.
set -euo pipefail
foos=${1:-3000} rounds=${2:-3} milliseconds=50 kilobits=20000
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"
cargo build --quiet --release --example delay-proxy
start_operator --leader-elect=true --leader-elect-resource-namespace=default --controllers=foo --workers=4
for ((n = 0; n < foos; n++)); do
  object samplecontroller.k8s.io/v1alpha1 Foo "foo-$n" "{deploymentName: foo-$n, replicas: 1}"
done >"$work/foos.yaml"
"$kubectl" create -f "$work/foos.yaml" >/dev/null
until_ready default "$foos"

address=$(grep -oE '127\.0\.0\.1:[0-9]+' "$KUBECONFIG")
coproc PROXY { exec "$target/release/examples/delay-proxy" "$address" "$milliseconds" "$kilobits"; }
read -r proxy <&"${PROXY[0]}"
sed -E "s,127\.0\.0\.1:[0-9]+,$proxy," "$KUBECONFIG" >"$work/far"

cpu() { awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hz }' "/proc/$1/stat"; }

# Starts a standby, waits until its caches are filled, and prints the four figures.
start_standby() { # KUBECONFIG [FLAG...]
  local before standby started ready ports health metrics
  before=$(cpu "$server") started=$EPOCHREALTIME
  "$windlass" run --kubeconfig "$@" --controllers=foo --audit-period=0 \
    --leader-elect-resource-namespace=default --log-format=text \
    --metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=127.0.0.1:0 >"$work/standby" 2>&1 &
  standby=$!
  until ports=$(sed -nE '/Serving/ s,.*address="?([0-9.:]+).*,\1,p' "$work/standby") && (($(wc -w <<<"$ports") == 2)); do :; done
  health=$(sed -nE '/readyz/ s,.*address="?([0-9.:]+).*,\1,p' "$work/standby" | head -n 1)
  metrics=$(sed -nE '/metrics/ s,.*address="?([0-9.:]+).*,\1,p' "$work/standby" | head -n 1)
  until curl --silent --fail --output /dev/null "http://$health/readyz"; do :; done
  ready=$EPOCHREALTIME
  curl --silent --show-error --fail "http://$metrics/metrics" |
    awk -v seconds="$(bc <<<"$ready - $started")" -v own="$(cpu "$standby")" -v server="$(bc <<<"$(cpu "$server") - $before")" '
      /^windlass_cache_received_bytes_total/ { bytes += $2 }
      END { print seconds, bytes, own, server }'
  kill "$standby"
  wait "$standby" 2>/dev/null || true
}

printf '%-44s %10s %12s %14s %16s\n' "" "ready" "received" "operator's CPU" "API server's CPU"
for link in near far; do
  kubeconfig=$KUBECONFIG name="in the cluster"
  if [[ $link == far ]]; then kubeconfig=$work/far name="$milliseconds ms, $((kilobits / 1000)) Mbit/s"; fi
  for what in "pages, plain" "pages, compressed" "streamed, plain" "streamed, compressed"; do
    flags=(--kube-api-stream-lists=false --kube-api-compress-lists=false)
    if [[ $what == streamed* ]]; then flags[0]=--kube-api-stream-lists; fi
    if [[ $what == *compressed ]]; then flags[1]=--kube-api-compress-lists; fi
    for ((round = 0; round < rounds; round++)); do start_standby "$kubeconfig" "${flags[@]}"; done >"$work/rounds"
    median() { sort -n -k "$1,$1" "$work/rounds" | awk -v column="$1" '{ all[NR] = $column } END { print all[int((NR + 1) / 2)] }'; }
    printf '%-44s %8.2f s %9.2f MB %12.2f s %14.2f s\n' "$name, $what" "$(median 1)" "$(bc <<<"scale=3; $(median 2) / 1000000")" "$(median 3)" "$(median 4)"
  done
done
