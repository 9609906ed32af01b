#!/usr/bin/env bash
# What several active replicas bring: the Foo operator with one leader, and with 16 shards on one, two and four replicas, on
# one real etcd and kube-apiserver that is full of converged Foos with their Deployments. Prints a table: time from the start
# until at rest, memory and processor time of the largest replica and of all, the API server's, and how many lists were made;
# then the same for some changes.
#   hack/bench/shards.sh [FOOS] [NAMESPACES] [REPLICAS...]     default: 100000 1000 1 2 4
# With 100000 Foos it takes half an hour on two cores, most of it to create them. The names of the namespaces are
# random, so that ranges of Kubernetes' hash are even. Needs python3.
set -euo pipefail
foos=${1:-100000} namespaces=${2:-1000}
shift $(($# < 2 ? $# : 2))
if (($#)); then replicas=("$@"); else replicas=(1 2 4); fi
# shellcheck source=hack/bench/operator.sh
source "$(dirname "${BASH_SOURCE[0]}")/operator.sh"
build_operator
start_control_plane --bare --no-audit-log --no-consistency-checks --sharded-lists
KUBECTL=$kubectl python3 -u hack/bench/shards.py --windlass="$windlass" --kubeconfig="$KUBECONFIG" --server-pid="$server" --dir="$work" \
  --foos="$foos" --namespaces="$namespaces" --replicas="$(IFS=,; echo "${replicas[*]}")"
