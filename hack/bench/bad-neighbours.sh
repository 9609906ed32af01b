#!/usr/bin/env bash
# Measures what custom resources that can never become Ready cost the others: runs the same load on one real control
# plane, first without and then beside them, and a third time beside another client that sends the server what windlass
# sent for them (hack/bench/replay.py). Fails if the 99th percentile from creation to the first status, or to Ready,
# beside them is more than twice the one beside the other client.
#   hack/bench/bad-neighbours.sh [WAYS] [PER_KIND] [BAD] [HUGE]     default: all 200 20 3000
#     WAYS   all of those below at once (`all`), or some of them, each by itself (`taken,huge`)
#     HUGE   the number of Pods of each huge Redis
#
# BAD objects of each kind are broken in one of these ways, in a namespace of its own:
#   taken     their children's names belong to objects of another owner
#   quota     a quota leaves no room for Deployments, Services and Pods
#   refused   an admission policy refuses their children
#   failing   a step of each WebApp fails permanently (other kinds have no steps)
#   broken    the stored object violates the schema, as if it was stored under an older one
#   hanging   an admission webhook answers the creation of their children after 30 s, which is an error
#   huge      no object is broken, but two Redis with HUGE Pods each are scaled to 0 meanwhile
set -euo pipefail
ways=${1:-all} per_kind=${2:-200} bad=${3:-20} huge=${4:-3000}
all=(taken quota refused failing broken hanging huge)
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hanging -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$work/key.pem" -out "$work/cert.pem" 2>/dev/null

# Serves the tasks' HTTP endpoint, which refuses WebApps in the namespace `failing`, and the webhook that hangs.
python3 -u - "$work" >"$work/port" <<'PYTHON' &
import http.server, json, ssl, sys, threading, time

class Endpoint(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(422 if body["webapp"]["namespace"] == "failing" else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

class Hanging(Endpoint):
    def do_POST(self):
        time.sleep(40)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
hanging = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hanging)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(f"{sys.argv[1]}/cert.pem", f"{sys.argv[1]}/key.pem")
hanging.socket = tls.wrap_socket(hanging.socket, server_side=True)
threading.Thread(target=hanging.serve_forever, daemon=True).start()
print(server.server_port, hanging.server_port)
server.serve_forever()
PYTHON
endpoint=$!
trap 'kill "$endpoint" 2>/dev/null || true; stop' EXIT
until [[ -s $work/port ]]; do
  kill -0 "$endpoint" || { echo "The tasks' endpoint did not start; it needs python3." >&2; exit 1; }
  sleep 0.2
done
read -r tasks_port webhook_port <"$work/port"
cat >"$work/tasks.yaml" <<TASKS
tasks:
  - {name: reserve, type: http, url: "http://127.0.0.1:$tasks_port/"}
  - {name: workload, type: deployment}
  - {name: announce, type: log}
TASKS

start_operator --webapp-tasks="$work/tasks.yaml"
so_many_of_each "$per_kind" >"$work/good.yaml"
so_many_of_each "$bad" >"$work/bad.yaml"

load() { # NAMESPACE
  "$kubectl" create namespace "$1" >/dev/null
  local before after creating
  before=$(processor_times)
  "$kubectl" create --namespace="$1" -f "$work/good.yaml" >/dev/null &
  creating=$!
  until_ready "$1" $((per_kind * 5))
  wait "$creating"
  after=$(processor_times)
  sleep 5
  echo "$1: number; to the first status: median, 99th percentile; to Ready: median, 99th percentile, last"
  latencies "$1" | tee "$work/$1"
  awk '{ printf "processor time: windlass %.1f s, API server %.1f s, etcd %.1f s; %.1f s passed\n", $5 - $1, $6 - $2, $7 - $3, $8 - $4 }' <<<"$before $after"
}
processor_times() {
  local pid
  for pid in "$operator" "$server" "$etcd_server"; do
    awk -v tick="$(getconf CLK_TCK)" '{ printf "%.2f ", ($14 + $15) / tick }' "/proc/$pid/stat"
  done
  echo "$EPOCHREALTIME"
}
somebody_elses() { # prints a Deployment or a Pod with the name of each child
  local number kind
  for ((number = 0; number < bad; number++)); do
    for kind in foo myapp appservice webapp; do
      object apps/v1 Deployment "$kind-$number" "{replicas: 0, selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}"
    done
    object v1 Pod "redis-$number-0" "{containers: [{name: c, image: i}]}"
  done
}
refuse_children() { # NAMESPACE
  "$kubectl" create -f - >/dev/null <<POLICY
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-children-$1}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: ["", apps, networking.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [deployments, services, pods, ingresses]}
  validations: [{expression: "false", message: no children in this namespace}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-children-$1}
spec:
  policyName: no-children-$1
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $1}}}
POLICY
  within_a_minute is_refused "$1"
}
hang_children() { # NAMESPACE
  "$kubectl" create -f - >/dev/null <<WEBHOOK
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $1}
webhooks:
  - name: hanging.windlass.dev
    admissionReviewVersions: [v1]
    sideEffects: None
    timeoutSeconds: 30
    clientConfig: {url: "https://127.0.0.1:$webhook_port/", caBundle: $(base64 -w0 "$work/cert.pem")}
    rules:
      - {apiGroups: ["", apps, networking.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [deployments, services, pods, ingresses]}
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $1}}
WEBHOOK
  within_a_minute hangs "$1"
}
hangs() { # NAMESPACE
  ! timeout 2 "$kubectl" create --namespace="$1" --dry-run=server service clusterip probe --tcp=80 2>&1
}
scale_huge() { # REPLICAS
  local number
  for number in 0 1; do
    "$kubectl" patch redis --namespace=huge "huge-$number" --type=merge --patch="{\"spec\": {\"replicas\": $1}}" >/dev/null
  done
}
create_huge() {
  local number
  for number in 0 1; do object myapp.tangx.in/v1 Redis "huge-$number" "{port: 6379, image: redis, replicas: $huge}"; done |
    "$kubectl" create --namespace=huge -f - >/dev/null
  until [[ $(ready_count huge) == 2 ]]; do
    echo "huge: $("$kubectl" get redis --namespace=huge --no-headers -o custom-columns=R:.status.readyReplicas | xargs) of $huge Pods each" >&2
    sleep 5
  done
}
is_refused() { # NAMESPACE
  ! "$kubectl" create --namespace="$1" --dry-run=server service clusterip probe --tcp=80 2>&1
}
store_broken() {
  sed 's/^spec: .*/spec: {deploymentName: 7, image: 7, version: 7}/' "$work/bad.yaml" |
    "$kubectl" apply --validate=false --namespace=broken -f - 2>&1
}
# Retries a command for a minute: the API server applies new policies and schemas with a delay.
within_a_minute() { # COMMAND...
  local tries
  for ((tries = 0; tries < 60; tries++)); do
    if "$@" >"$work/said"; then return; fi
    sleep 1
  done
  tail -3 "$work/said" >&2
  exit 1
}
break_schemas() {
  local crd anything='[{"op": "replace", "path": "/spec/versions/0/schema", "value": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]'
  for crd in $("$windlass" crds | sed -n 's/^  name: \(.*\..*\)/\1/p'); do
    "$kubectl" patch crd "$crd" --type=json --patch="$anything" >/dev/null
  done
}

# Makes a namespace in which objects break in one of the ways.
prepare() { # WAY NAMESPACE
  "$kubectl" create namespace "$2" >/dev/null
  case $1 in
    taken) somebody_elses | "$kubectl" create --namespace="$2" -f - >/dev/null ;;
    quota) "$kubectl" create quota none --namespace="$2" --hard=count/deployments.apps=0,services=0,pods=0 >/dev/null ;;
    refused) refuse_children "$2" ;;
    hanging) hang_children "$2" ;;
  esac
}
# Lets them break.
begin() { # WAY
  case $1 in
    broken) break_schemas && within_a_minute store_broken && define_kinds ;;
    huge) create_huge ;;
    *) "$kubectl" create --namespace="$1" -f "$work/bad.yaml" >/dev/null ;;
  esac
}
end() { # WAY
  [[ $1 == huge ]] || echo "$1: $(ready_count "$1") of $((bad * 5)) Ready"
  "$kubectl" delete windlass --all --namespace="$1" --wait=false >/dev/null
}

# The load beside some of the ways, and then beside another client that sends what windlass sent for them.
measure() { # NAME WAY...
  local name=$1 way from to replays=()
  shift
  for way in "$@"; do prepare "$way" "$way"; done
  for way in "$@"; do begin "$way"; done
  sleep 10
  from=$(stat -c %s "$audit")
  case " $* " in *" huge "*) scale_huge 0 ;; esac
  load "beside-$name"
  to=$(stat -c %s "$audit")
  for way in "$@"; do end "$way"; done

  replay() { KUBECTL=$kubectl python3 hack/bench/replay.py "$audit" "$from" "$to" "$1" "$1-again" "$2"; }
  for way in "$@"; do
    prepare "$way" "$way-again"
    replay "$way" prepare >"$work/$way"
  done
  for way in "$@"; do
    replay "$way" send >"$work/$way" &
    replays+=($!)
  done
  load "again-$name"
  wait "${replays[@]}"
  for way in "$@"; do echo "$way: $(<"$work/$way")"; done

  paste "$work/without" "$work/beside-$name" "$work/again-$name" | awk -v name="$name" '$1 == "all" {
    printf "%s: 99th percentile of the others, to the first status %.2f s alone, %.2f s beside windlass, %.2f s beside another client;",
      name, $5, $17, $29
    printf " to Ready %.1f s, %.1f s, %.1f s: %.2f and %.2f times that of the other client\n", $9, $21, $33, $17 / $29, $21 / $33 }' | tee -a "$work/summary"
}

load without
if [[ $ways == all ]]; then
  measure all "${all[@]}"
else
  for way in ${ways//,/ }; do measure "$way" "$way"; done
fi
echo
cat "$work/summary"
awk '$(NF - 6) > 2 || $(NF - 8) > 2 { bad = 1 } END { if (bad) print "That is more than twice."; exit bad }' "$work/summary"
