#!/usr/bin/env bash
# A real Kubernetes control plane on loopback, for people; see docs/control-plane.md.
#   control-plane.sh build   builds the programs, or says where they are
#   control-plane.sh kubectl prints where kubectl is; fails when it is not built yet
#   control-plane.sh up      starts it in the foreground and prints how to use it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build --quiet --example control-plane
exec "${CARGO_TARGET_DIR:-target}/debug/examples/control-plane" "$@"
