#!/usr/bin/env bash
# Fails if crd/ differs from the output of hack/update-codegen.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
hack/update-codegen.sh "$fresh"
if ! diff --unified --exclude=samples crd "$fresh"; then
  echo "crd/ is stale: run hack/update-codegen.sh and commit the result" >&2
  exit 1
fi
