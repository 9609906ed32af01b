#!/usr/bin/env bash
# The Foo operator as several people would write it, measured side by side on a real API server: on client-go, in three ways, on
# controller-runtime, on kube-rs, and ours. --help says how to use it; peers/README.md says what the figures mean.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

help() {
  cat <<'HELP'
hack/bench/peers.sh [FLAG...]

Measures operators that do the same work on a real etcd and kube-apiserver: processor time (theirs and the
server's), memory, requests, conflicts, and how long changes take. Prints a table for each scenario, medians of
the rounds, with ratios to client-go's.

  --controllers LIST    of client-go, client-go-conditions (the same with a status as full as windlass's),
                        client-go-sample, client-go-json, controller-runtime, kube-rs, windlass, separated by
                        commas; all when left out
  --scenarios LIST      of burst, churn, churn-one, cold, rest, separated by commas; all when left out
                          burst      3000 Foos at full rate; 3000 more at 100/s
                          churn      1000 changes at 100/s, then at 60/s, among 3000 Foos; 300 at 20/s among
                                     20000; all in 10 namespaces
                          churn-one  300 changes at 20/s among 20000 Foos in one namespace
                          cold       start with 20000 converged Foos, until at rest; again when 300 changed meanwhile
                          rest       a minute with nothing to do
  --rounds N            how often; each round has all controllers, one after the other (5)
  --one-rounds N        in how many of the rounds churn-one is measured: it takes a server of its own (1)
  --workers N           syncs at once of each controller (2)
  --size N              Foos of the large scenarios (20000)
  --starts N            starts of cold in each round, on the same Foos, with and without changes (1): with many Foos it
                        takes longer to create them than to start with them
  --with-manager        runs both bursts and the churn at 100/s once more with kube-controller-manager beside the
                        server, which writes status to Deployments: conflicts show in these rows
  --adopt               with --scenarios=cold: the first controller makes the Foos, and the others start with them on
                        the same server, which saves time with many. Name that with the fullest status first, since
                        others would write it anew. Nothing is changed, as no controller can update another one's
                        Deployments here
  --no-events           client-go writes no events, and the API server answers windlass's with 404; for these alone
  --resync DURATION     how often client-go's informers deliver all again (0; sample-controller has 30s)
  --quick               a smoke run: 200 Foos, one round, seconds for each controller
  --json FILE           writes medians, ratios and the results of each round there
  --before PROGRAM      measures this windlass of an earlier commit, too, as windlass-before
  --keep DIR            keeps logs and results there
  --server-profile DIR  keeps profiles of the API server's processor time there, some seconds each, and prints for
                        each scenario and controller where it went (go tool pprof adds up the files it is given)
  --no-build            measures what the last run built
  --help                this

What has gone through stays in the results when a later part fails, and is reported. Needs Go, Rust, and about 2
GB of memory. On two cores client-go takes about five minutes a round, and two and a half for churn-one.

  hack/bench/peers.sh --quick
  hack/bench/peers.sh --controllers=client-go,windlass --json=peers.json
  hack/bench/peers.sh --controllers=windlass,client-go --scenarios=cold --size=100000 --rounds=1 --adopt
  hack/bench/peers.sh --controllers=client-go,windlass --scenarios=cold --size=100000 --rounds=1 --starts=5
HELP
}

usage() { echo "hack/bench/peers.sh: $1; see --help" >&2; exit 2; }

controllers=client-go,client-go-conditions,client-go-sample,client-go-json,controller-runtime,kube-rs,windlass
scenarios=burst,churn,churn-one,cold,rest
rounds='' one_rounds=1 workers=2 size='' quick='' manager='' built='' json='' before='' keep='' profiles='' resync=0 starts=1 silent='' adopt=''
while (($#)); do
  flag=$1
  case $flag in
    --help | -h) help; exit 0 ;;
    --quick) quick=1; shift; continue ;;
    --with-manager) manager=1; shift; continue ;;
    --no-build) built=1; shift; continue ;;
    --no-events) silent=1; shift; continue ;;
    --adopt) adopt=1; shift; continue ;;
    --*=*) value=${flag#*=} flag=${flag%%=*}; shift ;;
    *)
      value=${2:-}
      if [[ $value == --* ]]; then value=''; fi
      shift $(($# > 1 ? 2 : 1))
      ;;
  esac
  case $flag in
    --controllers) controllers=$value ;;
    --scenarios) scenarios=$value ;;
    --rounds) rounds=$value ;;
    --one-rounds) one_rounds=$value ;;
    --workers) workers=$value ;;
    --size) size=$value ;;
    --starts) starts=$value ;;
    --resync) resync=$value ;;
    --json) json=$value ;;
    --before) before=$value ;;
    --keep) keep=$value ;;
    --server-profile) profiles=$value ;;
    *) usage "unknown flag '$flag'" ;;
  esac
  [[ -n $value ]] || usage "$flag has no value"
done
for number in ${rounds:+"$rounds"} "$one_rounds" "$workers" "$starts" ${size:+"$size"}; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || usage "'$number' is not a number above 0"
done
IFS=, read -ra chosen <<<"$controllers"
IFS=, read -ra parts <<<"$scenarios"
if [[ -n $adopt && ($scenarios != cold || -n $manager) ]]; then usage "--adopt is for --scenarios=cold alone, without --with-manager"; fi
if [[ -n $before ]]; then
  before=$(cd "$called_from" && realpath -m "$before")
  [[ -x $before ]] || usage "--before: '$before' is no program"
  chosen+=(windlass-before)
fi
for name in "${chosen[@]}"; do
  case $name in
    client-go | client-go-conditions | client-go-sample | windlass | windlass-before) ;;
    client-go-json | controller-runtime | kube-rs)
      if [[ -n $silent ]]; then usage "--no-events is for client-go, client-go-conditions, client-go-sample and windlass alone"; fi
      ;;
    *) usage "unknown controller '$name'" ;;
  esac
done
if [[ -n $quick ]]; then
  rounds=${rounds:-1} size=${size:-200}
  amounts=(--size="$size" --burst=100 --paced=50 --changes=50 --slow-changes=30 --rest=5s)
else
  rounds=${rounds:-5} size=${size:-20000}
  amounts=(--size="$size")
fi
amounts+=(--starts="$starts")
# What runs on a server with ten namespaces, on one with one, and on one with kube-controller-manager.
ten=() one=()
for part in "${parts[@]}"; do
  case $part in
    burst) ten+=(burst-full burst-paced) ;;
    churn) ten+=(churn-small churn-calm churn-large) ;;
    churn-one) one+=(churn-one) ;;
    cold) ten+=(cold); if [[ -z $adopt ]]; then ten+=(cold-changed); fi ;;
    rest) ten+=("$part") ;;
    *) usage "unknown scenario '$part'" ;;
  esac
done
join() { local IFS=,; echo "$*"; }

work=$(mktemp -d)
launcher='' lifeline='' driver=''
end_server() {
  if [[ -n $lifeline ]]; then
    exec {lifeline}>&-
    wait "$launcher" 2>/dev/null || true
    lifeline=''
  fi
}
stop() {
  trap - EXIT INT TERM HUP
  if [[ -n $driver ]]; then kill "$driver" 2>/dev/null || true; wait "$driver" 2>/dev/null || true; fi
  end_server
  rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP
from_caller() { (cd "$called_from" && realpath -m "$1"); }
if [[ -n $keep ]]; then kept=$(from_caller "$keep"); mkdir -p "$kept"; else kept=$work; fi
if [[ -n $json ]]; then json=$(from_caller "$json"); fi
results=$kept/results.jsonl
if [[ -n $profiles ]]; then
  profiles=$(from_caller "$profiles")
  mkdir -p "$profiles"
  if compgen -G "$profiles/*.pb.gz" >/dev/null; then usage "--server-profile: $profiles has profiles already"; fi
fi
: >"$results"

target=$(cargo metadata --no-deps --format-version=1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
here=$PWD/hack/bench/peers
bin=$target/peers
say() { printf '%(%H:%M:%S)T %s\n' -1 "$*" >&2; }

build() {
  say "Building the launcher, the driver and ${chosen[*]} ..."
  cargo build --quiet --locked --example control-plane
  mkdir -p "$bin"
  (cd "$here/go" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$bin/" ./...)
  local name
  for name in "${chosen[@]}"; do
    case $name in
      windlass) cargo build --quiet --locked --release --bin windlass ;;
      kube-rs) cargo build --quiet --locked --release --manifest-path="$here/kube-rs/Cargo.toml" --target-dir="$bin/kube-rs" ;;
    esac
  done
}

# How a controller is started.
command_of() { # NAME
  case $1 in
    client-go) command=("$bin/clientgo" --workers="$workers" --resync="$resync" ${silent:+--events=false}) ;;
    client-go-conditions) command=("$bin/clientgo" --conditions --workers="$workers" --resync="$resync" ${silent:+--events=false}) ;;
    client-go-sample) command=("$bin/clientgo" --always --workers="$workers" --resync="$resync" ${silent:+--events=false}) ;;
    client-go-json) command=("$bin/clientgo" --workers="$workers" --resync="$resync" --encoding=json) ;;
    controller-runtime) command=("$bin/controllerruntime" --workers="$workers") ;;
    kube-rs) command=("$bin/kube-rs/release/kube-rs-peer" --workers="$workers") ;;
    windlass | windlass-before)
      local program=$target/release/windlass
      if [[ $1 == windlass-before ]]; then program=$before; fi
      command=("$program" run --controllers=foo --workers="$workers" --leader-elect=false --queue-max-delay=1000s
        --metrics-bind-address=0 --health-probe-bind-address=0 ${silent:+--event-qps=100000})
      ;;
  esac
}

start_server() { # [FLAG...]
  coproc LAUNCHER { exec "$target/debug/examples/control-plane" serve --bare --no-audit-log --no-consistency-checks ${silent:+--no-events-api} "$@" 2>"$kept/launcher.log"; }
  launcher=$LAUNCHER_PID lifeline=${LAUNCHER[1]}
  local ready
  if ! read -r ready <&"${LAUNCHER[0]}"; then
    cat "$kept/launcher.log" >&2
    echo "The control plane did not start; its message is above." >&2
    return 1
  fi
  text() { sed -E "s/.*\"$1\":\"([^\"]*)\".*/\1/" <<<"$ready"; }
  number() { sed -E "s/.*\"$1\":([0-9]+).*/\1/" <<<"$ready"; }
  KUBECONFIG=$(text kubeconfig) kubectl=$(text kubectl) server=$(number kube-apiserver) etcd=$(number etcd)
  export KUBECONFIG
  "$kubectl" create -f crd/foos.samplecontroller.k8s.io.yaml >/dev/null
  "$kubectl" wait --for=condition=Established crd --all --timeout=60s >/dev/null
}

failures=0
# One controller on a server of its own, or on that of the one before it, whose Foos it adopts.
measure() { # ROUND NAME ROW SCENARIOS [FLAG OF THE LAUNCHER...]
  local round=$1 name=$2 row=$3 what=$4 status=0
  shift 4
  local adopts=$lifeline
  command_of "$name"
  if [[ -n $adopts ]] || start_server "$@"; then
    "$bin/driver" run --name="$row" --round="$round" --scenarios="$what" "${amounts[@]}" --kubeconfig="$KUBECONFIG" \
      --server-pid="$server" --etcd-pid="$etcd" --log="$kept/$row-$round.log" --results="$results" --profiles="$profiles" ${adopts:+--adopt} \
      -- "${command[@]}" --kubeconfig="$KUBECONFIG" &
    driver=$!
    wait "$driver" || status=$?
    driver=''
  else
    status=1
  fi
  if [[ -z $adopt ]] || ((status)); then end_server; fi
  if ((status)); then
    failures=$((failures + 1))
    say "$row failed in round $round; going on with the next"
  fi
}

if [[ -z $built ]]; then build; fi
for ((round = 1; round <= rounds; round++)); do
  for name in "${chosen[@]}"; do
    if ((${#ten[@]})); then measure "$round" "$name" "$name" "$(join "${ten[@]}")"; fi
    if ((${#one[@]} && round <= one_rounds)); then measure "$round" "$name" "$name" "$(join "${one[@]}")"; fi
    if [[ -n $manager ]]; then
      measure "$round" "$name" "$name+manager" burst-full,burst-paced,churn-small --with=kube-controller-manager
    fi
  done
  end_server
done

setting="$(uname -sm), $(nproc) cores, $workers workers, $rounds rounds, $starts starts in each, client-go's resync $resync${silent:+, no events}"
echo "$setting"
report=("${amounts[@]}" --setting="$setting")
if [[ -n $json ]]; then report+=(--json="$json"); fi
"$bin/driver" report "${report[@]}" "$results"
if [[ -n $profiles ]]; then
  # The names are scenario-controller-round-number; each of the first two may hold hyphens.
  for group in $(cd "$profiles" && printf '%s\n' *.pb.gz | sed -E 's/-[0-9]+-[0-9]+\.pb\.gz$//' | sort -u); do
    printf '\n%s: where the API server spends its time, with what each calls\n' "$group"
    go tool pprof -top -cum -nodecount=60 "$profiles/$group"-[0-9]*.pb.gz 2>/dev/null | tail -n +5 || true
  done
fi
if ((failures)); then echo "$failures runs failed; see above." >&2; exit 1; fi
