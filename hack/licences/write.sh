#!/usr/bin/env bash
# Describes what a program is made of, for hack/image.sh and hack/release.sh: writes DIRECTORY/third-party.txt, the
# licences of all crates in it, and DIRECTORY/windlass.cdx.json, its bill of materials (CycloneDX).
#   hack/licences/write.sh DIRECTORY [FLAG...]    the flags are cargo's for the program's features
# The tools for that are compiled the first time.
set -euo pipefail
directory=$(mkdir -p "$1" && cd "$1" && pwd)
features=("${@:2}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools
missing=$(hack/install-tools.sh cargo-cyclonedx cargo-about)
if [[ -n $missing ]]; then echo "hack/licences/write.sh: cannot build" $missing >&2; exit 1; fi

# What the tools below read without the network.
cargo fetch --quiet --locked
triple=$(rustc -vV | sed -n 's/^host: //p')
# Takes a minute or two, and depends on these files and the flags alone.
licences=$directory/third-party.txt
if ! [[ -s $licences ]] || [[ $(cat "$licences.flags" 2>/dev/null) != "${features[*]}" ]] ||
  [[ -n $(find Cargo.toml Cargo.lock hack/licences hack/install-tools.sh -newer "$licences") ]]; then
  "$tools/cargo-about" about generate --locked --offline --fail --config=hack/licences/about.toml --target="$triple" \
    ${features[@]+"${features[@]}"} --output-file="$licences.new" hack/licences/about.hbs
  mv "$licences.new" "$licences"
  echo "${features[*]}" >"$licences.flags"
fi
# This tool writes beside Cargo.toml.
trap 'rm -f windlass.cdx.json' EXIT
SOURCE_DATE_EPOCH=0 "$tools/cargo-cyclonedx" cyclonedx --quiet --format=json --spec-version=1.5 --no-build-deps --target="$triple" \
  ${features[@]+"${features[@]}"} --override-filename=windlass.cdx
# Neither the time nor the place of the build.
sed -e '/^    "timestamp": /d' -e "s|path+file://$PWD#|pkg:cargo/|" windlass.cdx.json >"$directory/windlass.cdx.json"
