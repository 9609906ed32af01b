# Runs a real control plane with a release build of the operator. Sourced by the measurements in this directory.
#   start_operator [FLAG...]   passes the flags to `windlass run`
#   build_operator; start_control_plane   without an operator
# Sets KUBECONFIG, $windlass, $kubectl, $audit (the audit log, one line per request), $operator, $server and
# $etcd_server (process ids) and $work (a temporary directory). Stops the processes and removes $work when the script exits.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${CARGO_TARGET_DIR:-target}
windlass=$target/release/windlass
work=$(mktemp -d)
launcher='' lifeline='' operator=''

stop() {
  trap - EXIT INT TERM
  if [[ -n $operator ]]; then kill "$operator" 2>/dev/null || true; wait "$operator" 2>/dev/null || true; fi
  if [[ -n $lifeline ]]; then exec {lifeline}>&-; wait "$launcher" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

build_operator() {
  echo "Building windlass (release) and the launcher ..." >&2
  cargo build --quiet --release --bin windlass
  cargo build --quiet --example control-plane
}

# Starts what build_operator has built, without an operator, with these flags of the launcher.
start_control_plane() { # [FLAG...]
  set -m
  coproc LAUNCHER { exec "$target/debug/examples/control-plane" serve "$@"; }
  launcher=$LAUNCHER_PID lifeline=${LAUNCHER[1]}
  local ready
  read -r ready <&"${LAUNCHER[0]}" || { echo "The control plane did not start; its message is above." >&2; exit 1; }
  value() { sed -E "s/.*\"$1\":\"([^\"]*)\".*/\1/" <<<"$ready"; }
  pid() { sed -E "s/.*\"$1\":([0-9]+).*/\1/" <<<"$ready"; }
  KUBECONFIG=$(value kubeconfig) kubectl=$(value kubectl) audit=$(value auditLog)
  server=$(pid kube-apiserver) etcd_server=$(pid etcd)
  export KUBECONFIG
  define_kinds
}

start_operator() {
  build_operator
  start_control_plane
  "$windlass" run --kubeconfig="$KUBECONFIG" --metrics-bind-address=0 --health-probe-bind-address=0 \
    --audit-period=0 --log-format=json "$@" >"$work/log" 2>&1 &
  operator=$!
}

define_kinds() {
  "$windlass" crds | "$kubectl" apply -f - >/dev/null
  "$kubectl" wait --for=condition=Established crd --all --timeout=60s >/dev/null
}

object() { # GROUP/VERSION KIND NAME SPEC
  printf 'apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n---\n' "$1" "$2" "$3" "$4"
}
one_of_each() { # NUMBER
  object samplecontroller.k8s.io/v1alpha1 Foo "foo-$1" "{deploymentName: foo-$1}"
  object myapp.timd.cn/v1 Myapp "myapp-$1" "{image: nginx, containerPort: 80, servicePort: 80, host: h$1.example.com}"
  object batch.schwarzeni.github.com/v1alpha1 AppService "appservice-$1" "{replicas: 1, image: nginx, ports: [{port: 80}]}"
  object myapp.tangx.in/v1 Redis "redis-$1" "{port: 6379, image: redis}"
  object jiajunhuang.com/v1 WebApp "webapp-$1" "{version: stable, replicas: 1}"
}
so_many_of_each() { # COUNT
  local number
  for ((number = 0; number < $1; number++)); do one_of_each "$number"; done
}

# Prints how many custom resources in a namespace are Ready.
ready_count() { # NAMESPACE
  "$kubectl" get windlass --namespace="$1" --no-headers \
    -o custom-columns='R:.status.conditions[?(@.type=="Ready")].status' 2>/dev/null | grep -c True || true
}
# Waits until COUNT custom resources in a namespace are Ready.
until_ready() { # NAMESPACE COUNT
  local started=$EPOCHREALTIME count
  while sleep 2; do
    count=$(ready_count "$1")
    echo "$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }') s: $count of $2 Ready" >&2
    [[ $count -lt $2 ]] || break
    kill -0 "$operator" || { tail -5 "$work/log"; exit 1; }
  done
}
# Prints how long the custom resources of a namespace waited, from the audit log, by kind: their number; the median and
# the 99th percentile of the time from a creation to the operator's first status update, which follows the creation of
# children; the same and the longest of the time to its last, for which the cluster has to run the Pods.
latencies() { # NAMESPACE
  python3 - "$audit" "$1" <<'PYTHON'
import datetime, json, sys

book, namespace = sys.argv[1:]
kinds = {"foos": "foo", "myapps": "myapp", "appservices": "appservice", "redis": "redis", "webapps": "webapp"}
created, first, last = {}, {}, {}
for line in open(book):
    entry = json.loads(line)
    what = entry.get("objectRef", {})
    if what.get("namespace") != namespace or what.get("resource") not in kinds or entry["responseStatus"]["code"] >= 300:
        continue
    kind, at = kinds[what["resource"]], datetime.datetime.fromisoformat(entry["stageTimestamp"])
    if entry["verb"] == "create":
        # The audit log has no names for creates, but kubectl creates the objects in order.
        created[kind, f"{kind}-{sum(1 for known, _ in created if known == kind)}"] = at
    elif what.get("subresource") == "status" and entry["userAgent"].startswith("windlass/"):
        first.setdefault((kind, what["name"]), at)
        last[kind, what["name"]] = at
begun, took = (
    {key: (at - created[key]).total_seconds() for key, at in ends.items() if key in created} for ends in (first, last)
)

def rank(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]

for kind in [*kinds.values(), "all"]:
    answers, times = ([time for key, time in all.items() if kind in (key[0], "all")] for all in (begun, took))
    columns = [rank(answers, 0.5), rank(answers, 0.99), rank(times, 0.5), rank(times, 0.99), max(times)]
    print(f"{kind:12} {len(times):5} " + " ".join(f"{time:8.3f} s" for time in columns))
PYTHON
}
