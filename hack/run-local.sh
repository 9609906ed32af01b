#!/usr/bin/env bash
# Starts a control plane, installs the CRDs, runs the operator and applies the samples; Ctrl-C stops everything.
# Prints how to use the cluster from a second terminal. With --once, exits when the samples are Ready.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

once=false
case ${1:-} in
  "") ;;
  --once) once=true ;;
  *)
    echo "usage: hack/run-local.sh [--once]" >&2
    exit 2
    ;;
esac

echo "Building windlass and the launcher ..." >&2
cargo build --quiet --bin windlass --example control-plane
target=${CARGO_TARGET_DIR:-target}/debug

# Background jobs get their own process groups, so that Ctrl-C only reaches this script, which stops them in order.
set -m
# The launcher stops the control plane when its standard input closes, which happens however this script ends.
coproc LAUNCHER { exec "$target/examples/control-plane" serve; }
if ! read -r ready <&"${LAUNCHER[0]}"; then
  echo "The control plane did not start; its message is above." >&2
  exit 1
fi
value() { sed -E "s/.*\"$1\":\"([^\"]*)\".*/\1/" <<<"$ready"; }
export KUBECONFIG
KUBECONFIG=$(value kubeconfig)
# Settings for another cluster must not apply to this one.
for name in $(compgen -e WINDLASS_ | grep -v '^WINDLASS_CACHE$' || true); do unset "$name"; done
kubectl=$(value kubectl)

launcher=$LAUNCHER_PID
lifeline=${LAUNCHER[1]}
operator=
stop() {
  trap - EXIT INT TERM
  if [[ -n $operator ]]; then
    kill "$operator" 2>/dev/null || true
    wait "$operator" 2>/dev/null || true
  fi
  exec {lifeline}>&-
  wait "$launcher" 2>/dev/null || true
}
trap stop EXIT
trap 'exit 130' INT TERM

"$target/windlass" crds | "$kubectl" apply -f -
"$kubectl" wait --for=condition=Established crd --all --timeout=30s
"$target/windlass" run --kubeconfig="$KUBECONFIG" --leader-elect=false --log-format=text &
operator=$!
"$kubectl" apply -f crd/samples/
"$kubectl" wait --for=condition=Ready --all windlass --timeout=60s
"$kubectl" get windlass,deployments,pods
if $once; then exit 0; fi

cat <<TEXT

Everything is up. In a second terminal:
  export KUBECONFIG=$KUBECONFIG
  export PATH=$(dirname "$kubectl"):\$PATH
  kubectl scale foo/example --replicas=4
  kubectl get foo,deployment
  kubectl describe foo example
Ctrl-C stops it all.
TEXT
wait "$operator"
