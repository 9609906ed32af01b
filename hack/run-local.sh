#!/usr/bin/env bash
# A control plane, the CRDs, the operator and the samples, in one command; Ctrl-C stops it all.
# Prints how to use it from a second terminal. With --once it ends when the samples are Ready.
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

# Each in a process group of its own, so that Ctrl-C reaches this script alone, which ends them in order.
set -m
# The launcher ends the control plane when its standard input closes: when this script ends, however.
coproc LAUNCHER { exec "$target/examples/control-plane" serve; }
if ! read -r ready <&"${LAUNCHER[0]}"; then
  echo "The control plane did not start; its message is above." >&2
  exit 1
fi
value() { sed -E "s/.*\"$1\":\"([^\"]*)\".*/\1/" <<<"$ready"; }
export KUBECONFIG
KUBECONFIG=$(value kubeconfig)
# What is set for another cluster is not for this one.
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
"$target/windlass" run --kubeconfig="$KUBECONFIG" --log-format=text &
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
