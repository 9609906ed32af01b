#!/usr/bin/env bash
# Gets the tools that only some tests need, into a cache outside the tree: promtool, from Debian's package prometheus.
# Prints the names of those that cannot be had here; their tests are then skipped by name. Needs no root.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools
mkdir -p "$cache"
if [[ -x $cache/promtool ]] || command -v promtool >/dev/null; then exit 0; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get() {
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
  cd "$work"
  # The list of packages may be missing or old; updating it needs root.
  apt-get --quiet --option APT::Sandbox::User=root download prometheus >&2 || { apt-get update >&2 && apt-get --quiet --option APT::Sandbox::User=root download prometheus >&2; } || return 1
  dpkg -x prometheus_*.deb . && install usr/bin/promtool "$cache/promtool"
}
if ! get; then echo promtool; fi
