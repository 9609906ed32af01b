#!/usr/bin/env bash
# Runs the tests: everything that CI runs, or only the named parts.
#   hack/test.sh                 all parts; e2e cases that need the real control plane, and a slice of the others on it
#   hack/test.sh all             all parts, with every e2e case on both beds
#   hack/test.sh unit e2e        these parts, in this order
#   hack/test.sh e2e -- scale    passes everything after -- to the part's test program
#   hack/test.sh e2e --bed embedded    e2e on the embedded server only: takes seconds, needs no Go
# Parts: fmt, lint, features, docs, unit, model, doc, book, e2e; only with `all`: image, package, deny, two-views. --help
# says what each is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

parts=(fmt lint features docs unit model doc book e2e)
# These take minutes and need further tools.
more=(image package deny two-views)
# How many plans two-views tries for each workload.
plans=${WINDLASS_TWO_VIEWS_PLANS:-50}
chosen=()
rest=()
bed=both
extent=slice
everything=false
while (($#)); do
  case $1 in
    -h | --help)
      cat <<'HELP'
hack/test.sh [all | PART ...] [--bed BED] [--all] [-- ARGUMENTS]

  fmt       the code is formatted
  lint      clippy, warnings denied; shell scripts parse; Go is formatted; the workflows of CI are valid (actionlint,
            which is built with Go the first time)
  features  the library compiles without the program's features, the program without the demo's
  docs      the documentation builds, warnings denied
  unit      unit tests, the soak test's among them, and the rules of the repository; crd/ matches the types
  model     the work queue under a model checker, which tries many orders of its threads
  doc       the examples: those in the documentation, and examples/
  book      the controller that docs/book builds, its pages, and that the reader's copy is still to be done
  e2e       end-to-end cases on two beds: the embedded server, and a real control plane, which is built with Go
            the first time. On the real bed a selection of the cases runs: some of each operator, and those that
            need a real server. With `all`, --bed or ARGUMENTS, all of them run.
  image     two builds of the image have one digest; its program works on a real control plane; it has the licences
            of everything in it (needs buildah and root)
  package   what cargo packs builds by itself: library, program, examples
  two-views 50 plans for each workload with two operators, in place of the 3 of e2e; with --all all plans, which takes
            many hours
  deny      licences, sources and versions of the dependencies are as deny.toml allows

Without a PART every part but the last four runs; `all` runs them, too, and every e2e case on the real bed. BED is
embedded (needs only Rust, takes seconds), real, or both (the default). ARGUMENTS are passed to the test program of
unit and e2e, for example part of a test's name. If a tool is missing, its part is skipped and counted; with CI set,
that is a failure.

Generated cases are the same in each run unless WINDLASS_E2E_SEED (1) or WINDLASS_FIXED_POINT_SPECS (20 of each kind)
say otherwise. WINDLASS_FIDELITY_SEQUENCES (100) come from WINDLASS_FIDELITY_SEED, by default a new seed for each run,
which is printed. With WINDLASS_OPERATIONS_ON_REAL=1 every field of every spec is changed on the real bed, too.

WINDLASS_CRASH_POINTS (a number, or all) sets how many points of each workload the crash plan tries; by default
8 cuts and 4 errors.

WINDLASS_KUBERNETES=1.31 runs the cases of the real bed on the oldest Kubernetes that is supported, which is built the
first time.

WINDLASS_TWO_VIEWS_PLANS (a number, all, or a piece such as 1/10; default 3) sets how many plans with two operators are
tried for each workload, from WINDLASS_TWO_VIEWS_SEED, by default a new seed for each run, which is printed. The pieces
1/10 to 10/10 of one seed are all plans.

WINDLASS_PERMISSIONS (a number, or all; default 6, with `all` all of them) sets how many permissions of the role are
taken away, one at a time, chosen anew in each run.
HELP
      exit 0
      ;;
    all)
      extent=all everything=true
      export WINDLASS_PERMISSIONS=${WINDLASS_PERMISSIONS:-all}
      ;;
    --all) plans=all ;;
    --bed | --bed=*)
      extent=all
      if [[ $1 == --bed ]]; then
        shift
        bed=${1:-}
      else
        bed=${1#--bed=}
      fi
      if [[ $bed != embedded && $bed != real && $bed != both ]]; then
        echo "hack/test.sh: there is no bed '$bed'; beds: embedded real both" >&2
        exit 2
      fi
      ;;
    --)
      shift
      rest=("$@")
      extent=all
      break
      ;;
    *)
      if [[ " ${parts[*]} ${more[*]} " != *" $1 "* ]]; then
        echo "hack/test.sh: there is no part '$1'; parts: ${parts[*]} ${more[*]}" >&2
        exit 2
      fi
      chosen+=("$1")
      ;;
  esac
  shift
done
if ! ((${#chosen[@]})); then
  chosen=("${parts[@]}")
  if $everything; then chosen+=("${more[@]}"); fi
fi

if [[ $plans == all && -z ${WINDLASS_TWO_VIEWS_PLANS:-} && " ${chosen[*]} " != *" two-views "* ]]; then
  echo "hack/test.sh: --all is for the part two-views: hack/test.sh two-views --all" >&2
  exit 2
fi

passed=0 failed=0 skipped=0
summary=()
log=$(mktemp)
builder=''
cleanup() {
  rm -f "$log"
  if [[ -n $builder ]]; then kill -- "-$builder" 2>/dev/null || true; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# Builds the control plane, and with `all` helm, beside the parts that do not need them. The part e2e waits for that,
# and reports a failure.
if [[ $bed != embedded && " ${chosen[*]} " == *" e2e "* ]] && command -v go >/dev/null; then
  build='hack/control-plane/control-plane.sh build'
  if $everything; then build+='; hack/install-tools.sh promtool chromium helm'; fi
  setsid bash -c "$build" >/dev/null 2>&1 &
  builder=$!
fi

# Sums up the results in the log of a cargo test run.
count() {
  local p f i
  p=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$log")
  f=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$log")
  i=$(awk '/^test result:/ { n += $8 } END { print n + 0 }' "$log")
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + i))
  detail="$p passed, $f failed"
  if ((i)); then detail+=", $i ignored"; fi
}

# Counts the e2e cases on these beds.
cases_on() {
  cargo test --quiet --locked --test e2e -- --list 2>/dev/null | grep -cE "::($1): test" || true
}

# Whether a tool is in the path or in the cache of hack/install-tools.sh.
has() { command -v "$1" >/dev/null || [[ -x ${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools/$1 ]]; }

# Counts the passed cases that did nothing for want of a tool as skipped, and names the tool.
without_tools() {
  local tool cases n
  for tool in promtool:monitoring::each_alert_fires chromium:page:: helm:helm::; do
    cases=${tool#*:} tool=${tool%%:*}
    if has "$tool"; then continue; fi
    n=$(grep -cE "^test $cases.* ok$" "$log" || true)
    if ((n)); then
      passed=$((passed - n)) skipped=$((skipped + n))
      detail+=", $n of them skipped: hack/install-tools.sh $tool gets what they need"
    fi
  done
}

# Whether the last run lacked kubectl.
has_no_kubectl() { grep -q 'kubectl is not built yet' "$log"; }

# Adds the number of passed cases per bed to the summary line.
beds() {
  local embedded real one none
  embedded=$(grep -cE '::embedded(_kubectl)? \.\.\. ok' "$log" || true)
  real=$(grep -c '::real \.\.\. ok' "$log" || true)
  one=$(grep -c '::only_real \.\.\. ok' "$log" || true)
  none=$(grep -c '::no_bed \.\.\. ok' "$log" || true)
  detail+="; $embedded on the embedded bed, $real on the real one, $one on the real one only, $none on none"
}

fmt() { cargo fmt --check; }
lint() {
  cargo clippy --all-targets --locked -- -D warnings
  local script
  for script in hack/*.sh hack/{control-plane,fuzz,bench,licences}/*.sh .ci/run; do bash -n "$script"; done
  # The fuzz targets are a crate of their own, whose lock file follows ours.
  cargo tree --quiet --locked --manifest-path hack/fuzz/Cargo.toml >/dev/null
  if command -v gofmt >/dev/null; then [[ -z $(gofmt -l hack) ]]; fi
  workflows
}
# The workflows of CI are valid. What else actionlint would call, if it is there, is left out: then it says the same
# everywhere.
workflows() {
  if [[ -n $(hack/install-tools.sh actionlint) ]]; then
    echo "workflows not checked: actionlint does not build here, which needs Go"
    [[ -z ${CI:-} || " ${WINDLASS_WITHOUT:-} " == *" actionlint "* ]]
  else
    "${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools/actionlint" -shellcheck= -pyflakes= .github/workflows/*.yml
  fi
}
# A library user chooses the version of k8s-openapi; without default features it must be set here.
features() {
  K8S_OPENAPI_ENABLED_VERSION=1.37 cargo check --no-default-features --lib --locked
  # `run` needs no embedded server, and the types of the version before will do.
  cargo check --no-default-features --features cli,k8s-v1-36 --locked
  # Tests have features of their dependencies that the program does not have.
  cargo check --locked
  # The image has traces.
  cargo check --no-default-features --features cli,k8s-v1-37,otlp --locked
}
book() { hack/book.sh check; }
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --lib --locked; }
unit() { cargo test --locked --lib --bins --test tidy --example soak --example sample_controller -- "$@"; }
model() { cargo test --locked --lib --features shuttle -- workqueue::queue::model; }
doc() {
  cargo test --locked --doc
  # Each example runs, and prints what it is about.
  cargo build --quiet --locked --examples
  example() { [[ $(cargo run --quiet --locked --example "$1") == *"$2"* ]] || { echo "example $1 does not print $2"; return 1; }; }
  example 01_work_queue "later"
  example 02_informer "- Observed(default/web-"
  example 03_rate_limiting "pass 4"
  example 04_controller "Hello, world"
  example 05_task_executor "post_delete"
  example 06_index "on node-a: [default/web-1@1, default/web-3@4]"
  example 07_projection "web-1 is Running"
  example 08_handlers "fast has seen all 20 objects"
  example 09_site "hello is taken off the list of sites"
  example 10_tune "Take --workers=8"
  example sample_controller "Deployment deleted: 3 of 3 replicas are available"
}
# The second build finds the first one's program, so that only the image is built again.
image() {
  local folder first second
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  first=$(hack/image.sh --root "$folder/root" --output "$folder/first.tar" | tee /dev/stderr | grep ^digest:)
  second=$(hack/image.sh --output "$folder/second.tar" | grep ^digest:)
  if [[ $first != "$second" ]]; then echo "a second build has another $second"; return 1; fi
  hack/control-plane/control-plane.sh build
  WINDLASS_IMAGE_ROOT=$folder/root cargo test --locked --test e2e -- image::
}
two-views() {
  local names=("${@/#/two_views::}")
  if ! (($#)); then names=(two_views::); fi
  WINDLASS_TWO_VIEWS_PLANS=$plans cargo test --locked --test e2e -- --nocapture "${names[@]}"
}
# The dependencies are those that the other parts have built.
package() {
  local target
  target=$(cargo metadata --no-deps --format-version=1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
  cargo fetch --quiet --locked
  export CARGO_TARGET_DIR=$target
  cargo package --locked --offline --allow-dirty
  cargo build --locked --offline --examples --manifest-path "$target/package/windlass-$(cargo pkgid | sed 's/.*[#@]//')/Cargo.toml"
}
deny() {
  "${XDG_CACHE_HOME:-$HOME/.cache}/windlass/tools/cargo-deny" --locked check -D warnings bans licenses sources
}
# Keeps the names of cases that a default run includes: on the real bed only those of the slice.
in_slice() {
  # shellcheck disable=SC2086
  awk -v slice="$(echo $slice)" '
    BEGIN { n = split(slice, wanted, " ") }
    /^image::/ { next }
    /^day::a_replaced_authority/ { next }
    /^page::tour_/ { next }
    !/::real$/ { print; next }
    { for (i = 1; i <= n; i++) if (index($0, wanted[i])) { print; next } }'
}
# Cases mostly wait for the control plane, so more of them run at once than there are cores.
e2e() {
  case $bed in
    both)
      # The control plane must be there before the cases start, even if only one of them runs.
      hack/control-plane/control-plane.sh build
      if [[ $extent == all ]]; then
        cargo test --locked --test e2e -- --test-threads=8 --skip image:: "$@"
      else
        # In one run, so that cases wait for the control plane while others compute.
        mapfile -t cases < <(cargo test --quiet --locked --test e2e -- --list | sed -n 's/: test$//p' | in_slice)
        cargo test --locked --test e2e -- --test-threads=8 --exact "${cases[@]}"
      fi
      ;;
    real) cargo test --locked --test e2e -- --test-threads=8 --skip ::embedded --skip image:: "$@" ;;
    embedded)
      cargo build --quiet --locked --example control-plane
      local without_kubectl=()
      if ! hack/control-plane/control-plane.sh kubectl; then without_kubectl=(--skip ::embedded_kubectl); fi
      cargo test --locked --test e2e -- --skip ::real --skip ::only_real "${without_kubectl[@]}" "$@"
      ;;
    *) return 2 ;;
  esac
}

# Prints what the failed tests in the log said, without their backtraces: a long log is often cut in its middle.
failures() {
  awk '
    /^---- .* stdout ----$/ { name = $2; left = 0; next }
    name && /panicked at / { print name ": " $0; left = 10; next }
    /^stack backtrace:/ || /^note: / || /^$/ { left = 0 }
    left { left--; print "  " substr($0, 1, 500) }' "$log"
}

# Runs a part in its own shell, because `set -e` has no effect in a function called from a condition.
run() {
  local status
  set +e
  bed=$bed extent=$extent plans=$plans bash -euo pipefail -c "$(declare -f "$1" in_slice workflows); $1 \"\$@\"" hack/test.sh ${rest[@]+"${rest[@]}"} 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  set -e
  return "$status"
}

# The cases that a default run repeats on the real control plane, as substrings of their names.
export slice="
  applying:: audits:: children:: dry_run:: faults:: requests:: schema:: usage:: leader_election::
  foo::a_foo_gets foo::the_deployment_follows foo::a_new_deployment_name foo::foreground_deletion
  myapp::a_myapp_gets myapp::update_keeps myapp::status_reports_pending
  appservice::an_appservice_gets appservice::an_update_keeps
  redis::a_redis_is_scaled redis::a_new_image redis::a_deleted_redis
  webapp::a_webapp_goes webapp::deleted_webapp webapp::each_operation_takes_effect
  every_kind::status::nothing_is_written every_kind::in_the_way::refused_child_is_reported
  kubectl::kubectl_applies kubectl::kubectl_describe"

# Prints which tool a part lacks and how to get it.
missing() {
  case $1 in
    e2e)
      # Without Go, the programs may still come from the cache or from KUBEBUILDER_ASSETS.
      if [[ $bed != embedded ]] && ! command -v go >/dev/null && ! hack/control-plane/control-plane.sh build >"$log" 2>&1; then
        tail -n 1 "$log"
      fi
      ;;
    image)
      if ! command -v buildah >/dev/null; then
        echo "buildah is missing: apt-get install buildah"
      elif ((EUID)); then
        echo "chroot needs root"
      fi
      ;;
    deny)
      if [[ -n $(hack/install-tools.sh cargo-deny 2>"$log") ]]; then
        echo "cargo-deny does not build here: $(tail -n 1 "$log")"
      fi
      ;;
  esac
}

started=$SECONDS said=''
for part in "${chosen[@]}"; do
  echo "=== $part"
  from=$SECONDS detail=""
  if [[ $part == e2e && -n $builder ]]; then
    wait "$builder" || true
    builder=''
  fi
  why=$(missing "$part")
  if [[ -n $why ]]; then
    echo "$why"
    if [[ -n ${CI:-} ]]; then
      state=FAILED failed=$((failed + 1))
    elif [[ $part != e2e ]]; then
      state=skipped skipped=$((skipped + 1))
    else
      state=skipped
      bed=embedded
      if ! run "$part"; then state=FAILED; fi
      count
      if [[ $state == FAILED && $detail == *", 0 failed"* ]]; then failed=$((failed + 1)); fi
      beds
      needs_go=$(cases_on 'real|only_real')
      if has_no_kubectl; then needs_go=$(cases_on 'real|only_real|embedded_kubectl'); fi
      skipped=$((skipped + needs_go))
      detail+=", $needs_go skipped"
    fi
    detail="${detail:+$detail; }$why"
  elif run "$part"; then
    state=ok
    case $part in unit | model | doc | e2e | image | two-views) count ;; *) passed=$((passed + 1)) ;; esac
    if [[ $part == lint ]] && grep -q '^workflows not checked' "$log"; then
      detail=$(grep '^workflows not checked' "$log") skipped=$((skipped + 1))
    fi
    if [[ $part == e2e ]]; then
      beds
      without_tools
      # Without kubectl its cases are skipped and counted; with CI set that is a failure.
      if [[ $bed == embedded ]] && has_no_kubectl; then
        without=$(cases_on embedded_kubectl)
        skipped=$((skipped + without))
        detail+=", $without skipped: kubectl is not built"
        if [[ -n ${CI:-} ]]; then state=FAILED failed=$((failed + 1)); fi
      fi
    fi
  else
    state=FAILED
    case $part in unit | model | doc | e2e | image | two-views) count ;; esac
    said+=$(failures)$'\n'
    # A part that fails without a failed test, for example at compile time, counts as one failure.
    if [[ -z $detail || $detail == *", 0 failed"* ]]; then failed=$((failed + 1)); fi
  fi
  summary+=("$(printf '%-9s %-8s %4d s  %s' "$part" "$state" $((SECONDS - from)) "$detail")")
done

if [[ -n ${said//$'\n'/} ]]; then printf '\n=== failures\n%s' "$said"; fi
echo
echo "=== summary ($((SECONDS - started)) s)"
printf '%s\n' "${summary[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
