#!/usr/bin/env bash
# Packs the program for those who have no Rust. --help says more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

help() {
  cat <<'HELP'
hack/release.sh [--output DIR]

Builds the program for this machine and writes to DIR (target/release-files):

  windlass-VERSION-SYSTEM-ARCH.tar.gz       the program, its manual pages and completions, licences and bill of materials
  windlass-VERSION-SYSTEM-ARCH.cdx.json     the bill of materials alone (CycloneDX)

The same program gives the same archive. It runs where the C library is as new as this machine's. The tools that list
licences and materials are compiled the first time.
HELP
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
target=$(cargo metadata --no-deps --format-version=1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
output=$target/release-files
while (($#)); do
  case $1 in
    --help | -h) help; exit 0 ;;
    --output=*) output=${1#*=} ;;
    --output)
      (($# > 1)) || { echo "hack/release.sh: --output has no value; see --help" >&2; exit 2; }
      output=$2
      shift
      ;;
    *) echo "hack/release.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
case $(uname -m) in
  x86_64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) arch=$(uname -m) ;;
esac
name=windlass-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$arch

hack/licences/write.sh "$target/release-licences"
# Panic messages name source files: no matter where the crates are, the binary is the same.
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/crates" \
  cargo build --locked --release --bin windlass --target-dir="$target/release-build"

files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
install -D -m 755 "$target/release-build/release/windlass" "$files/$name/windlass"
install -m 644 LICENSE "$target"/release-licences/{third-party.txt,windlass.cdx.json} "$files/$name/"
"$files/$name/windlass" man "$files/$name/man"
mkdir "$files/$name/completion"
for shell in bash zsh fish; do "$files/$name/windlass" completion "$shell" >"$files/$name/completion/windlass.$shell"; done
mkdir -p "$output"
# One time and one owner for every file, and no time in the archive's header.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C "$files" -cf - "$name" |
  gzip -9 --no-name >"$output/$name.tar.gz"
cp "$files/$name/windlass.cdx.json" "$output/$name.cdx.json"
(cd "$output" && sha256sum "$name.tar.gz" "$name.cdx.json")
