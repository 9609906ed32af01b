#!/usr/bin/env bash
# Makes known mistakes in a copy of the source, one at a time, and runs the tests that must fail.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in
  -h | --help)
    cat <<'HELP'
hack/variants.sh [--list | NAME ...]
hack/variants.sh hunt NAME [--check TEST]

Applies each patch of hack/variants (or those named) to a copy of the source in target/variants, and runs the tests that
the patch names. The one that docs/known-mistakes.md names must fail. Exits with 1 if a mistake was not found. All of them
take an hour on two cores. A patch that no longer applies is an error, here and in the tidy test: make the mistake
again in the new code.

`hunt` is an exercise: it makes a copy of the source with one mistake in it, in target/hunt/NAME. Find it by a test that you
add there. --check runs the unit test of that name: it must fail with the mistake, and pass without it.
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
# Copies the source to this directory.
copy_to() {
  mkdir -p "$1"
  git ls-files -z | while IFS= read -r -d '' file; do if [[ -f $file ]]; then printf '%s\0' "$file"; fi; done |
    tar --create --null --files-from=- | tar --extract --directory="$1"
}

hunt() {
  local name=$1 patch=$PWD/hack/variants/$1.patch copy=$PWD/target/hunt/$1
  if [[ ! -f $patch ]]; then
    echo "hack/variants.sh: there is no variant '$name'; --list prints them, with what they do" >&2
    return 2
  fi
  if ! grep -q '^found by: cargo test --lib' "$patch"; then
    echo "hack/variants.sh: '$name' is not found by a unit test; hunt another" >&2
    return 2
  fi
  export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} GIT_CEILING_DIRECTORIES=$PWD/target
  if (($# == 1)); then
    if [[ -e $copy ]]; then
      echo "hack/variants.sh: $copy exists, perhaps with a test of yours; remove it to begin anew" >&2
      return 1
    fi
    rm -rf "$copy.new"
    copy_to "$copy.new"
    (cd "$copy.new" && git apply "$patch")
    mv "$copy.new" "$copy"
    echo "A copy with one mistake in it: $copy"
    echo "Add a unit test there that fails because of it; then: hack/variants.sh hunt $name --check YOUR_TEST"
    return
  fi
  if [[ $2 != --check || $# != 3 ]]; then
    echo "usage: hack/variants.sh hunt NAME [--check TEST]" >&2
    return 2
  fi
  local test=$3 result
  if [[ ! -d $copy ]]; then
    echo "hack/variants.sh: there is no $copy; begin with: hack/variants.sh hunt $name" >&2
    return 1
  fi
  if git grep --quiet --word-regexp "fn $test" -- src; then
    echo "hack/variants.sh: the repository has a test '$test' already; give yours another name" >&2
    return 1
  fi
  # The same copy without the mistake.
  rm -rf "$copy.sound"
  cp --archive "$copy" "$copy.sound"
  if ! (cd "$copy.sound" && git apply --reverse "$patch"); then
    echo "hack/variants.sh: the lines with the mistake were changed, in $copy or in the repository" >&2
    return 1
  fi
  # Prints failed, passed or, if there is no such test or nothing compiles, the end of the output.
  try() {
    local output
    # What changed since the last build is told by times, and both copies share the build.
    find "$1" -name '*.rs' -exec touch {} +
    output=$(cd "$1" && timeout --foreground 900 cargo test --locked --lib "$test" 2>&1) || true
    if grep -qE "^test (.*::)?$test(::.*)?( - should panic)? \.\.\. FAILED$" <<<"$output"; then
      echo failed
    elif grep -qE "^test (.*::)?$test(::.*)?( - should panic)? \.\.\. ok$" <<<"$output"; then
      echo passed
    else
      tail -n 20 <<<"$output" >&2
      echo "no result, see above"
    fi
  }
  result=$(try "$copy")
  if [[ $result != failed ]]; then
    echo "With the mistake, the test must fail: $result"
    return 1
  fi
  result=$(try "$copy.sound")
  if [[ $result != passed ]]; then
    echo "Without the mistake, the test must pass: $result"
    return 1
  fi
  echo "Found: $test fails with the mistake, and passes without it."
  echo "The mistake: $(head -n 1 "$patch") The repository's own test for it is in docs/known-mistakes.md."
}
if [[ ${1:-} == hunt ]]; then
  if (($# < 2)); then
    echo "usage: hack/variants.sh hunt NAME [--check TEST]" >&2
    exit 2
  fi
  hunt "${@:2}"
  exit
fi

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
copy_to "$copy"
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
