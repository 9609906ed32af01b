#!/usr/bin/env bash
# Makes known mistakes in a copy of the source, one at a time, and runs the tests that must fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
  -h | --help)
    cat <<'HELP'
hack/variants.sh [--list | NAME ...]

Applies each patch of hack/variants (or those named) to a copy of the source in target/variants, and runs the tests that
the patch names. The one that docs/known-mistakes.md names must fail. Exits with 1 if a mistake was not found. All of them
take an hour on two cores. A patch that no longer applies is an error, here and in the tidy test: make the mistake
again in the new code.
HELP
    exit 0
    ;;
  --list)
    for patch in hack/variants/*.patch; do
      printf '%-28s %s\n' "$(basename "$patch" .patch)" "$(head -n 1 "$patch")"
    done
    exit 0
    ;;
esac
names=("$@")
if ((!$#)); then
  for patch in hack/variants/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi
for name in "${names[@]}"; do
  if [[ ! -f hack/variants/$name.patch ]]; then
    echo "hack/variants.sh: there is no variant '$name'; --list prints them" >&2
    exit 2
  fi
done

# The copy keeps times, so that only what a patch touches is built again; the dependencies are those of the tree.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
copy=$PWD/target/variants
# The copy is not the repository around it.
export GIT_CEILING_DIRECTORIES=$PWD/target
mkdir -p "$copy"
git ls-files -z | while IFS= read -r -d '' file; do if [[ -f $file ]]; then printf '%s\0' "$file"; fi; done |
  tar --create --null --files-from=- | tar --extract --directory="$copy"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

missed=0
at=0
for name in "${names[@]}"; do
  at=$((at + 1)) from=$SECONDS patch=$PWD/hack/variants/$name.patch
  read -ra tests <<<"$(sed -n 's/^found by: cargo test //p' "$patch")"
  echo "$at of ${#names[@]}: $name ..."
  if ! (cd "$copy" && git apply "$patch"); then
    missed=$((missed + 1))
    continue
  fi
  (cd "$copy" && timeout --foreground 900 cargo test --locked "${tests[@]}") >"$log" 2>&1 || true
  (cd "$copy" && git apply --reverse "$patch")
  # Any other failure might be one of the sound code.
  wanted=$(sed -n "s/^| \`$name\` | .*\`\([a-z0-9_]*\)\` |$/\1/p" docs/known-mistakes.md)
  found=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | grep -E "(^|::)$wanted(::|$)" | head -n 1 || true)
  if [[ -n $wanted && -n $found ]]; then
    echo "found by $found, $((SECONDS - from)) s"
  else
    missed=$((missed + 1))
    echo "MISSED by $wanted, $((SECONDS - from)) s:"
    grep --only-matching 'WINDLASS_TWO_VIEWS_SEED=[0-9]*' "$log" | sort --unique || true
    tail -n 5 "$log"
  fi
done
echo "$((${#names[@]} - missed)) of ${#names[@]} mistakes were found"
((!missed))
