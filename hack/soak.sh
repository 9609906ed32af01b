#!/usr/bin/env bash
# A soak test: the operator on a real control plane, for hours, under churn and random faults. --help says more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

help() {
  cat <<'HELP'
hack/soak.sh [HOURS] [--output text|json] [--keep-logs] [--sabotage WHAT]

Runs the operator (a release build) on a real control plane for HOURS (1; a fraction such as 0.1 is fine), and lets it
live through what a cluster does to it. Prints a line every 10 s, each fault with its time (UTC, as in the operator's
log), and a report at the end. Exit codes: 0 passed, 1 failed, 2 wrong usage, 130 interrupted.

What happens, at the same time:
  churn       some 60 objects of the five kinds in three namespaces are created, changed, scaled, renamed, deleted and
              created again, and their children edited and deleted by hand; about one change a second
  faults      one at a time, one begins every 20 to 40 s, for 3 to 12 s: the operator is killed (in the first half of
              the time, so that one process lives through the second half) or frozen; the API server is killed or
              frozen; etcd is killed; the operator's connections are cut or stalled; an admission webhook is
              unreachable or hangs; a quota leaves no room; a namespace with objects is deleted; a definition is
              removed with all of its objects, and put back
  neighbour   a namespace at which no fault is aimed gets an object every 10 s; the report has the times to Ready,
              apart for those with no fault under way (10 s after its end included), and names those over 5 s

What is checked when the faults are over and everything has settled, which may take 5 minutes:
  - every object is Ready, except those whose child's name belongs to an object of somebody else
  - each object has the children that its spec asks for, and no others
  - no child has lost its owner, and nothing is stuck in deletion
  - objects of somebody else, with names and labels like ours, are as they were
  - the operator writes nothing for 60 s, except the ends of series of events
  - the operator has neither panicked nor ended by itself
  - memory and open files of its longest-living process grow by less than 10 MB and 15 files an hour (least squares,
    without its first 5 minutes; judged from 20 minutes on)

  SOAK_SEED=N         repeats the choices of the run that printed N; their timing may differ
  --output json       the report as one JSON object on standard output; progress is on standard error
  --keep-logs         keeps the operator's logs, as after a failure; the last line names the directory
  --sabotage WHAT     spoils something by hand before the last check, to see it fail: `foreign` deletes an object of
                      somebody else, `doubled` gives a Redis a child that it does not want, `stuck` leaves a WebApp
                      in deletion

Needs what the e2e cases on a real control plane need (Go, the first time), Linux, and about 1.5 GB of memory.

  hack/soak.sh 0.1
  SOAK_SEED=417 hack/soak.sh 8
HELP
}

for argument in "$@"; do
  case $argument in
    -h | --help) help; exit 0 ;;
  esac
done

echo "Building windlass (release) and the launcher ..." >&2
cargo build --quiet --locked --release --bin windlass
cargo build --quiet --locked --example control-plane --example soak
target=${CARGO_TARGET_DIR:-target}
# It stops all that it starts, also after Ctrl-C.
exec "$target/debug/examples/soak" --windlass="$target/release/windlass" --launcher="$target/debug/examples/control-plane" "$@"
