#!/usr/bin/env bash
# Sweeps every profile of `windlass tune` and writes the pictures of docs/tuning.md (needs chromium).
#   hack/bench/profiles.sh      takes some two minutes after the build
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
command -v chromium >/dev/null || { echo "chromium is missing: hack/install-tools.sh chromium" >&2; exit 1; }
cargo build --quiet --release --locked
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for profile in startup steady outage webhook noisy-neighbour; do
  flags=()
  if [[ $profile == outage ]]; then flags=(--queue-max-delay 5s,30s,120s --queue-qps 10,50,200); fi
  echo "=== $profile"
  "${CARGO_TARGET_DIR:-target}/release/windlass" tune sweep --profile "$profile" "${flags[@]}" --report "$work/$profile.html"
  chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=960,1250 \
    --screenshot="$PWD/docs/images/tune-$profile.png" "file://$work/$profile.html" >/dev/null 2>&1
done
