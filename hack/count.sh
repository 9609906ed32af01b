#!/usr/bin/env bash
# Counts what a reader of the controller holds in the head, and what one change of a Deployment runs through.
#   hack/count.sh             counts this checkout
#   hack/count.sh REVISION    counts another revision of it, in a worktree of its own
# Code lines are without tests, comments and blank lines. The hop is a trace: functions of src/ (but for the embedded
# server, derived code and closures) that run while hack/count/hop.rs lets one Deployment become available, from the
# watch event to the Foo's status. Needs valgrind; without it the hop is left out, which is said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi
folder=$(mktemp -d)
here=$PWD
trap 'cd "$here"; rm -rf "$folder"; git worktree prune' EXIT
trap 'exit 130' INT TERM HUP
root=$here
target=${CARGO_TARGET_DIR:-$root/target}
if (($#)); then
  root=$folder/checkout
  git worktree add --quiet --detach "$root" "$1"
  target=$target/count
fi

# Prints the code of these files, without tests, comments and blank lines.
code() {
  find "$@" -name '*.rs' ! -name tests.rs ! -path '*/tests/*' -print0 | sort -z | xargs -0 awk '
    FNR == 1 { held = ""; in_tests = 0 }
    in_tests { next }
    /^#\[cfg\(test\)\]/ { held = $0; next }
    held != "" && /^(pub\(crate\) )?mod tests \{/ { in_tests = 1; next }
    held != "" && !/^#\[cfg/ { held = "" }
    !/^[[:space:]]*(\/\/|$)/'
}
row() { printf '%-58s %s\n' "$1" "$2"; }

cd "$root"
row "code lines of src/controller" "$(code src/controller | wc -l)"
for room in src/controller/*/; do row "  $(basename "$room")" "$(code "$room" | wc -l)"; done
for room in cli client cache workqueue; do row "code lines of src/$room" "$(code "src/$room" | wc -l)"; done
row "enums of src/controller" "$(code src/controller | grep -cE '^[[:space:]]*(pub(\([^)]*\))? )?enum ')"
row "memories of a key: maps by object, fields of the controller" \
  "$(code src/controller | grep -cE '^[[:space:]]*(pub(\([^)]*\))? )?[a-z_]+: .*(HashMap<ObjectName|Recent<)' || true)"
# The types that make up a sync, before and now.
row "booleans of a sync: fields of Pass, SyncRequest and the like" "$(code src/controller | awk '
  /struct (Pass|SyncRequest|Tools|ReconcileContext|Children|GuardedWrite|OwnerEvidence)(<.*>)? \{/ { inside = 1; next }
  /^\}/ { inside = 0 }
  inside && /: (Mutex<|Cell<|Atomic)?[bB]ool>?,/ { n++ }
  END { print n + 0 }')"
row "terms of ours in ARCHITECTURE.md" "$(awk '/^Terms (that only this project uses|of this project alone)/ { t = 1; next } /^## / { t = 0 } t && /^\| / && !/^\| term / { n++ } END { print n + 0 }' ARCHITECTURE.md)"
row "code lines of examples/04_controller.rs" "$(code examples/04_controller.rs | wc -l)"

if ! command -v valgrind >/dev/null; then
  echo "no trace of the hop: valgrind is missing (apt-get install valgrind)"
  exit 0
fi
# An older revision gets the driver of this one.
if [[ ! -e hack/count/hop.rs ]]; then cp "$here/hack/count/hop.rs" examples/hop.rs; fi
CARGO_TARGET_DIR=$target cargo build --quiet --example hop
valgrind --quiet --tool=callgrind --callgrind-out-file="$folder/hop" --toggle-collect='hop::hop' \
  "$target/debug/examples/hop" >/dev/null
callgrind_annotate --threshold=100 --auto=no "$folder/hop" 2>/dev/null |
  sed -nE 's/^ *[0-9,]+ \([^)]*\) +(src\/[^ ]*\.rs):(.*) \[[^]]*\]$/\1 \2/p' |
  grep -vE '^src/(sim|testing)[/.]|::_::| as (serde_core|core|alloc|std|tracing|prometheus_client)[a-z_]*::' |
  sed -E "s/'[0-9]+\$//; s/(::\{\{closure\}\})+.*//" | sort -u >"$folder/functions"
count() { row "$1" "$(grep -E "$2" "$folder/functions" | wc -l) / $(grep -E "$2" "$folder/functions" | cut -d' ' -f1 | sort -u | wc -l)"; }
count "the hop: functions / files" .
count "  from the wire to the queue (cache, workqueue)" '^src/(cache|workqueue)'
count "  from the queue to the status (controller, operators)" '^src/(controller|operators)'
count "  everything else (client, record, metrics, api, ...)" '^src/(client|record|metrics|api|health|leader_election|cli|server|duration)'
if [[ -n ${COUNT_FUNCTIONS:-} ]]; then cp "$folder/functions" "$COUNT_FUNCTIONS"; fi
