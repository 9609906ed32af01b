#!/usr/bin/env bash
# Copies into the Helm chart what it shares with the kustomizations, writes the table of its README from the schema of its
# values, and records in tests/data what it renders, so that tests without helm can compare the two. Needs helm
# (hack/install-tools.sh helm).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

chart=hack/deploy/chart
rm -rf "$chart/files"
mkdir -p "$chart/files/crds"
cp crd/*.*.*.yaml "$chart/files/crds/"
cp hack/deploy/monitoring/{dashboard.json,prometheus-rule.yaml} "$chart/files/"
# An icon is a URL. This one has the picture in it, and so needs no place on the network.
sed -i "s|^icon: .*|icon: data:image/svg+xml;base64,$(base64 --wrap=0 docs/images/icon.svg)|" "$chart/Chart.yaml"
WINDLASS_WRITE_CHART=1 cargo test --quiet --locked --test tidy -- chart::readme_of_the_chart_is_current

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
