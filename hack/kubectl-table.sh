#!/usr/bin/env bash
# Runs the command lines of hack/kubectl/lines against the embedded server and against a real control plane, each with
# the operator, and compares exit codes and output. Writes the summary into docs/embedded-server.md.
#   hack/kubectl-table.sh              all scenarios
#   hack/kubectl-table.sh NAME...      these scenarios; writes nothing
# Prints each line that differs, with both outcomes. Fails if more than ten differ without a reason in the data files.
# A set WINDLASS_BUILT skips the build. KEEP=FOLDER keeps the outcomes there.
set -euo pipefail
if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
fi
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/bench/operator.sh"
allowed=10
doc=docs/embedded-server.md
here=$PWD/hack/kubectl
only=("$@")
demos=()
stop_demos() { for demo in "${demos[@]}"; do kill -INT "$demo" 2>/dev/null || true; done; stop; }
trap stop_demos EXIT

[[ -n ${WINDLASS_BUILT:-} ]] || build_operator
start_control_plane
export PATH="$(dirname "$kubectl"):$PATH"
printf 'apiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {name: sample}\nspec: {deploymentName: sample}\n' >"$work/sample.yaml"
mkdir -p "$work/real" "$work/embedded"
cp "$KUBECONFIG" "$work/real/kubeconfig"
start_demo() { # SIDE [FLAG...]
  "$windlass" demo --debug-bind-address=0 --samples="$work/sample.yaml" "${@:2}" >"$work/$1/demo" 2>&1 &
  demos+=("$!")
  until grep -qs 'foo/sample ready=True' "$work/$1/demo"; do
    kill -0 "$!" || { cat "$work/$1/demo"; exit 1; }
    sleep 0.2
  done
}
start_demo real --kubeconfig="$KUBECONFIG"
start_demo embedded
cp "$(sed -n 's/^ *export KUBECONFIG=//p' "$work/embedded/demo")" "$work/embedded/kubeconfig"

# Prints the lines of all scenarios: scenario, kind (+ or =), reason, command.
scenarios() {
  awk '/^(#|@|$)/ { next } /^\[/ { name = $0; gsub(/[][]/, "", name); next } /^~ / { reason = substr($0, 3); next }
    { kind = "="; if (sub(/^\+ /, "")) kind = "+"; print name "\t" kind "\t" (reason == "" ? "-" : reason) "\t" $0; reason = "" }' \
    "$here"/lines/*.txt
}
wanted() { (( ${#only[@]} == 0 )) || [[ " ${only[*]} " == *" $1 "* ]]; }

# Runs all scenarios on one side, one after another; a folder for each line with its exit code and output.
run_side() { # SIDE
  local side=$work/$1 scenario='' kind reason line number
  export HOME=$side TERM=dumb
  NODE=$(KUBECONFIG=$side/kubeconfig kubectl get nodes -o jsonpath='{.items[0].metadata.name}' 2>/dev/null || true)
  export NODE=${NODE:-node-0}
  while IFS=$'\t' read -r name kind reason line; do
    wanted "$name" || continue
    if [[ $name != "$scenario" ]]; then
      scenario=$name number=0
      export NAMESPACE=table-$name KUBECONFIG=$side/$name/kubeconfig
      mkdir -p "$side/$name"
      cp -r "$here/files/." "$side/kubeconfig" "$side/$name"
      cd "$side/$name"
      kubectl create namespace "$NAMESPACE" >/dev/null
      kubectl config set-context --current --namespace="$NAMESPACE" >/dev/null
      until kubectl get serviceaccount default >/dev/null 2>&1; do sleep 0.1; done
    fi
    number=$((number + 1))
    local to=$side/$name/outcome/$number code=0
    mkdir -p "$to"
    timeout 90 bash -c "$line" >"$to/out" 2>"$to/err" </dev/null || code=$?
    if [[ $kind == + ]]; then
      ((code == 0)) || echo "$1, [$name]: preparing failed ($code): $line: $(<"$to/err")" >&2
    else
      { echo "exit $code"; sed -E -f "$here/normalise.sed" "$to/out"; echo '--'; sed -E -f "$here/normalise.sed" "$to/err"; } >"$to/all"
    fi
  done < <(scenarios)
}
run_side real & real=$!
run_side embedded & embedded=$!
wait "$real" && wait "$embedded"
[[ -z ${KEEP:-} ]] || { rm -rf "$KEEP"; cp -r "$work" "$KEEP"; }

# Compares: verb, verdict, reason, scenario, line.
compare() {
  local scenario='' number
  while IFS=$'\t' read -r name kind reason line; do
    wanted "$name" || continue
    [[ $name == "$scenario" ]] || { scenario=$name number=0; }
    number=$((number + 1))
    [[ $kind == = ]] || continue
    local verb verdict=same
    verb=$(sed -E 's/(.*[^-a-z])?kubectl (-[^ ]+ )*([a-z-]+).*/\3/' <<<"$line")
    if ! diff "$work/real/$name/outcome/$number/all" "$work/embedded/$name/outcome/$number/all" >"$work/diff"; then
      verdict=differs
      [[ $reason == - ]] || verdict=documented
    elif [[ $reason != - ]]; then
      echo "[$name] is the same, although a reason is given ($reason): $line" >&2
    fi
    if [[ $verdict == differs ]]; then
      { echo "[$name] $line"; echo "  < real, > embedded"; sed 's/^/  /' "$work/diff"; } >&2
    fi
    printf '%s\t%s\t%s\t%s\t%s\n' "$verb" "$verdict" "$reason" "$name" "$line"
  done < <(scenarios)
}
compare >"$work/results"

summary() {
  echo "| verb | lines | same | differ, for a reason below | differ |"
  echo "|---|---|---|---|---|"
  awk -F'\t' '{ n[$1]++; v[$1, $2]++; all++; w[$2]++ }
    END { for (verb in n) printf "| `%s` | %d | %d | %d | %d |\n", verb, n[verb], v[verb, "same"], v[verb, "documented"], v[verb, "differs"] | "sort"
          close("sort"); printf "| together | %d | %d | %d | %d |\n", all, w["same"], w["documented"], w["differs"] }' "$work/results"
  echo
  echo "| reason | lines |"
  echo "|---|---|"
  awk -F'\t' 'FNR == NR { if ($0 ~ /^@/) { split($0, part, " "); name = substr(part[1], 2); words[name] = substr($0, length(part[1]) + 2); order[++last] = name } next }
    $2 == "documented" { sub(/^.*kubectl /, "", $5); gsub(/\|/, "\\|", $5); lines[$3] = lines[$3] (lines[$3] == "" ? "" : ", ") "`" $5 "`" }
    END { for (at = 1; at <= last; at++) if (lines[order[at]] != "") print "| " words[order[at]] " | " lines[order[at]] " |" }' \
    "$here/lines/00-reasons.txt" "$work/results"
}
summary >"$work/summary"
cat "$work/summary"
if ((${#only[@]} == 0)); then
  awk -v file="$work/summary" '/<!-- kubectl table ends -->/ { skip = 0 } !skip { print }
    /<!-- kubectl table begins/ { print ""; while ((getline line < file) > 0) print line; print ""; skip = 1 }' "$doc" >"$work/doc"
  cp "$work/doc" "$doc"
fi
differ=$(awk -F'\t' '$2 == "differs"' "$work/results" | wc -l)
((differ <= allowed)) || { echo "$differ lines differ without a reason, more than $allowed." >&2; exit 1; }
