#!/usr/bin/env bash
# Runs a real Kubernetes control plane on loopback, for manual use; see docs/control-plane.md.
#   control-plane.sh build   builds missing programs and prints the path of each
#   control-plane.sh kubectl prints the path of kubectl; fails if it is not built yet
#   control-plane.sh up      starts the control plane in the foreground and prints how to use it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --quiet --example control-plane
exec "${CARGO_TARGET_DIR:-target}/debug/examples/control-plane" "$@"
