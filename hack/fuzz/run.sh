#!/usr/bin/env bash
# Builds and runs a fuzz target on stable Rust: what `cargo fuzz run` does, but without its tool, nightly Rust and the
# address sanitizer, which code without `unsafe` can do without. Needs a C++ compiler.
set -euo pipefail
if [[ $# == 0 || $1 == -h || $1 == --help ]]; then
  cat <<'HELP'
hack/fuzz/run.sh frames|pages [ARGUMENT ...]

Arguments are libFuzzer's: -max_total_time=60 runs for a minute, a file repeats one input. Otherwise it runs until it finds
something or is interrupted. Inputs that reach something new, and what fails, are written to target/fuzz/found. Cut what
failed short and move it to hack/fuzz/corpus, with the fix: the unit tests read the corpus.
HELP
  exit 0
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=$1
shift
if [[ ! -d $here/corpus/$target ]]; then
  echo "hack/fuzz/run.sh: there is no target '$target'; targets: frames pages" >&2
  exit 2
fi
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$here/../../target/fuzz}
host=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
# With --target the flags are for the program alone, not for build scripts and macros.
RUSTFLAGS=$flags cargo build --manifest-path "$here/Cargo.toml" --release --locked --target "$host" --bin "$target"
program=$CARGO_TARGET_DIR/$host/release/$target
for argument in "$@"; do
  if [[ -f $argument ]]; then exec "$program" "$@"; fi
done
found=$CARGO_TARGET_DIR/found/$target
mkdir -p "$found"
exec "$program" -artifact_prefix="$found/failed-" -rss_limit_mb=1024 -timeout=10 "$@" "$found" "$here/corpus/$target" \
  "$here/corpus/$target-protobuf"
