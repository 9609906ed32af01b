#!/usr/bin/env bash
# Gets tools that only some tests need, into a cache outside the tree. Prints the names of those that cannot be had
# here; their tests are then skipped by name. Only chromium needs root: its package is installed.
#   hack/install-tools.sh              promtool, chromium, actionlint
#   hack/install-tools.sh TOOL...      promtool, from Debian's package prometheus; chromium, Debian's package; helm and
#                                      actionlint, built with Go; cargo-about, cargo-cyclonedx, cargo-deny,
#                                      cargo-semver-checks and mdbook, built with Cargo: 2 to 4 minutes each
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools
mkdir -p "$cache"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

promtool() {
  if [[ -x $cache/promtool ]] || type -P promtool >/dev/null; then return; fi
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
  cd "$work"
  # The list of packages may be missing or old; updating it needs root.
  apt-get --quiet --option APT::Sandbox::User=root download prometheus >&2 || { apt-get update >&2 && apt-get --quiet --option APT::Sandbox::User=root download prometheus >&2; } || return 1
  dpkg -x prometheus_*.deb . && install usr/bin/promtool "$cache/promtool"
}

chromium() {
  # Not the function of that name.
  if type -P chromium >/dev/null; then return; fi
  command -v apt-get >/dev/null && ((EUID == 0)) || return 1
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install chromium fonts-dejavu-core)
  "${install[@]}" >&2 || { apt-get update >&2 && "${install[@]}" >&2; } || return 1
}

helm() {
  # One of another version in the cache is replaced.
  if [[ -x $cache/helm ]] && cmp --quiet hack/helm/go.sum "$cache/helm.sum"; then return; fi
  command -v go >/dev/null || return 1
  echo "Building helm with Go: some minutes the first time, cached in $cache afterwards ..." >&2
  CGO_ENABLED=0 go build -C hack/helm -mod=readonly -trimpath -buildvcs=false -ldflags='-s -w' -o "$work/helm" helm.sh/helm/v4/cmd/helm >&2 || return 1
  install "$work/helm" "$cache/helm" && cp hack/helm/go.sum "$cache/helm.sum"
}

actionlint() {
  local version=v1.7.12
  if [[ -x $cache/actionlint && $(cat "$cache/actionlint.version" 2>/dev/null) == "$version" ]]; then return; fi
  command -v go >/dev/null || return 1
  echo "Building actionlint $version with Go: some seconds the first time, cached in $cache afterwards ..." >&2
  CGO_ENABLED=0 GOBIN=$work go install -trimpath -ldflags='-s -w' "github.com/rhysd/actionlint/cmd/actionlint@$version" >&2 || return 1
  install "$work/actionlint" "$cache/actionlint" && echo "$version" >"$cache/actionlint.version"
}

# Builds a crate in this version, unless the cache has that.
crate() {
  local name=$1 version=$2
  if [[ -x $cache/$name && $(cat "$cache/$name.version" 2>/dev/null) == "$version" ]]; then return; fi
  echo "Building $name $version: some minutes the first time, cached in $cache afterwards ..." >&2
  # Flags of the caller's build are not meant for this one.
  env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR="$work/target" \
    cargo install --quiet --locked --root "$work" "$name@$version" "${@:3}" >&2 || return 1
  install "$work/bin/$name" "$cache/$name" && echo "$version" >"$cache/$name.version"
}
cargo-about() { crate cargo-about 0.9.3 --features=cli; }
cargo-cyclonedx() { crate cargo-cyclonedx 0.5.9; }
cargo-deny() { crate cargo-deny 0.20.2; }
cargo-semver-checks() { crate cargo-semver-checks 0.51.0; }
mdbook() { crate mdbook 0.5.4; }

(($#)) || set -- promtool chromium actionlint
for tool; do
  case $tool in
    promtool | chromium | helm | actionlint | cargo-about | cargo-cyclonedx | cargo-deny | cargo-semver-checks | mdbook) ("$tool") || echo "$tool" ;;
    *) echo "hack/install-tools.sh: unknown tool '$tool'" >&2; exit 2 ;;
  esac
done
