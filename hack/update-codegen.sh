#!/usr/bin/env bash
# Writes crd/<plural>.<group>.yaml from the Rust types, or writes to the directory given as an argument.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-crd}
mkdir -p "$out"
crds=$(cargo run --quiet --bin windlass -- crds)
rm -f "$out"/*.yaml
# Writes one file per document, named after its metadata.name.
awk -v out="$out" '
  /^---$/ { flush(); next }
  { text = text $0 "\n" }
  /^  name: / && name == "" { name = $2 }
  END { flush() }
  function flush() {
    if (name != "") { file = out "/" name ".yaml"; printf "---\n%s", text > file; close(file) }
    text = ""; name = ""
  }
' <<<"$crds"
