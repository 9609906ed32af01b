#!/usr/bin/env bash
# Copies into the Helm chart what it shares with the kustomizations, and records in tests/data what it renders, so that
# tests without helm can compare the two. Needs helm (hack/install-tools.sh helm).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=hack/deploy/chart
rm -rf "$chart/files"
mkdir -p "$chart/files/crds"
cp crd/*.*.*.yaml "$chart/files/crds/"
cp hack/deploy/monitoring/{dashboard.json,prometheus-rule.yaml} "$chart/files/"

PATH=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools:$PATH
record() {
  {
    echo "# What the chart renders with ${*:2}. Written by hack/update-chart.sh from files with this digest:"
    echo "# $(find "$chart" -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1)"
    helm template windlass "$chart" "${@:2}"
  } >"tests/data/$1"
}
record chart.yaml --namespace=windlass-system --set=crds.enabled=false
record chart-namespaced.yaml --namespace=default --set=crds.enabled=false,namespaced=true
