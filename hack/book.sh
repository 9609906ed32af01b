#!/usr/bin/env bash
# The book "Build a controller from nothing", in docs/book; --help says what there is to do.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mdbook() {
  local missing
  missing=$(hack/install-tools.sh mdbook)
  if [[ -n $missing ]]; then
    echo "hack/book.sh: mdbook does not build here; docs/book/src can be read as it is" >&2
    exit 1
  fi
  "${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools/mdbook" "$@" --dest-dir "$PWD/target/book" docs/book
}

case ${1:-help} in
  check)
    cargo test --locked --test mini
    cargo test --quiet --locked --test start --no-run
    # What is left to the reader is missing: the tests of each chapter fail.
    for chapter in {1..9}; do
      if cargo test --quiet --locked --test start "tests::ch$chapter::" >/dev/null 2>&1; then
        echo "hack/book.sh: chapter $chapter is solved in docs/book/start, which is for the reader to do" >&2
        exit 1
      fi
    done
    ;;
  start) WINDLASS_WRITE_BOOK=1 cargo test --quiet --locked --test mini start_is_mini ;;
  pages)
    for part in trace_of code_in_the_pages; do
      WINDLASS_WRITE_BOOK=1 cargo test --quiet --locked --test mini "$part" -- --test-threads=1
    done
    ;;
  build) mdbook build ;;
  serve) mdbook serve --hostname 127.0.0.1 ;;
  *)
    cat <<'HELP'
hack/book.sh PART: the book "Build a controller from nothing", in docs/book.

  check     holds pages, finished code, the reader's code and tests to each other, and runs the tests
  start     writes the reader's code anew from the finished code: what was solved there is lost
  pages     writes the code in the pages anew, and the recordings of what the production code does
  build     renders it to target/book, with mdBook
  serve     renders it, and again after each change, at http://127.0.0.1:3000
HELP
    [[ ${1:-help} == help || $1 == --help || $1 == -h ]] || exit 2
    ;;
esac
