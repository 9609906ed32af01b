#!/usr/bin/env bash
# Builds the operator's image: the binary without the embedded server, the libraries that it is linked to, the
# certificates of public authorities, the bill of materials, licences, and nothing else. --help says more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

help() {
  cat <<'HELP'
hack/image.sh [FLAG...]

Builds an OCI image with buildah (on Debian: apt-get install buildah; works as root without a daemon) and writes it as
an archive. The same source gives the same digest. Prints the archive, its digest and its size. The image also has a bill
of materials (CycloneDX) and the licences of everything in it; the tools for that are compiled the first time.

  --output FILE   the archive (target/image/windlass-VERSION.oci.tar)
  --tag TAG       tag within the archive (the version)
  --arch ARCH     amd64 or arm64; only that of this machine can be built, as the others need a cross compiler
  --root DIR      leaves the image's root file system there, too
  --help          this

Push it with any tool that reads OCI archives:
  skopeo copy oci-archive:target/image/windlass-0.1.0.oci.tar docker://REGISTRY/windlass:0.1.0
HELP
}

usage() { echo "hack/image.sh: $1; see --help" >&2; exit 2; }

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
output='' tag=$version arch='' root=''
while (($#)); do
  case $1 in
    --help | -h) help; exit 0 ;;
    --output | --tag | --arch | --root)
      (($# > 1)) || usage "$1 has no value"
      declare "${1#--}=$2"
      shift 2
      ;;
    --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
    *) usage "unknown flag '$1'" ;;
  esac
done
case $(uname -m) in
  x86_64) native=amd64 ;;
  aarch64) native=arm64 ;;
  *) native=$(uname -m) ;;
esac
if [[ ${arch:=$native} != "$native" ]]; then
  usage "this machine builds $native; for $arch run it on such a machine"
fi
command -v buildah >/dev/null || { echo "hack/image.sh: buildah is missing: apt-get install buildah" >&2; exit 1; }

target=$(cargo metadata --no-deps --format-version=1 | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')
output=${output:-$target/image/windlass-$version.oci.tar}
mkdir -p "$(dirname "$output")"
output=$(cd "$(dirname "$output")" && pwd)/$(basename "$output")

# Panic messages name source files: no matter where the crates are, the binary is the same.
export CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=/crates"
# The embedded server, its demo and what they need stay out.
features=(--no-default-features --features=cli,k8s-v1-37,otlp)
hack/licences/write.sh "$target/image" "${features[@]}"
cargo build --locked --profile image "${features[@]}" --bin windlass --target-dir="$target/image/build"
binary=$target/image/build/image/windlass

files=$(mktemp -d)
container=''
clean() {
  if [[ -n $container ]]; then buildah rm "$container" >/dev/null; fi
  rm -rf "$files"
}
trap clean EXIT
install -D -m 755 "$binary" "$files/usr/bin/windlass"
install -D -m 644 LICENSE "$files/usr/share/licenses/windlass/LICENSE"
install -D -m 644 "$target/image/third-party.txt" "$files/usr/share/licenses/windlass/third-party.txt"
install -D -m 644 "$target/image/windlass.cdx.json" "$files/usr/share/sbom/windlass.cdx.json"
# Where the loader and the system's certificates are in the image is where they are here.
mapfile -t libraries < <(ldd "$binary" | grep -o '/[^ ]*')
for library in "${libraries[@]}"; do
  install -D -m 755 "$(readlink -f "$library")" "$files$library"
done
certificates=/etc/ssl/certs/ca-certificates.crt
[[ -r $certificates ]] || { echo "hack/image.sh: $certificates is missing: apt-get install ca-certificates" >&2; exit 1; }
install -D -m 644 "$certificates" "$files$certificates"
# Where scanners look for what came from Debian, with its licences. On another system these packages go unnamed.
if command -v dpkg >/dev/null; then
  mkdir -p "$files/var/lib/dpkg/status.d"
  install -D -m 644 /etc/os-release "$files/etc/os-release"
  # The database may know a library by either path, where /lib is a link.
  packages=$(dpkg --search "${libraries[@]}" $(readlink -f "${libraries[@]}") 2>/dev/null | sed 's/:.*//' | sort -u || true)
  for package in $packages ca-certificates; do
    dpkg --status "$package" >"$files/var/lib/dpkg/status.d/$package"
    install -D -m 644 "/usr/share/doc/$package/copyright" "$files/usr/share/doc/$package/copyright"
  done
fi
# A name for the user, for tools that want one.
mkdir -p "$files/etc"
echo 'windlass:x:65532:65532:windlass:/:/sbin/nologin' >"$files/etc/passwd"
chmod -R u=rwX,go=rX "$files"
if [[ -n $root ]]; then mkdir -p "$root" && cp -a "$files/." "$root/"; fi

export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
container=$(buildah from scratch)
buildah add --quiet --chown 0:0 "$container" "$files" / >/dev/null
buildah config --user 65532:65532 --entrypoint '["/usr/bin/windlass"]' --cmd run --port 8080 --port 8081 --arch "$arch" \
  --label org.opencontainers.image.title=windlass --label "org.opencontainers.image.version=$version" \
  --label org.opencontainers.image.licenses=Apache-2.0 "$container"
# One time for every file and for the image: the same content has the same digest.
rm -f "$output"
image=$(buildah commit --quiet --timestamp 0 --format oci "$container" "oci-archive:$output:windlass:$tag")
digest=$(tar -xOf "$output" index.json | grep -o 'sha256:[0-9a-f]*' | head -1)
echo "$output"
echo "digest: $digest"
printf 'size: %s, binary: %s\n' "$(du -h "$output" | cut -f1)" "$(du -h "$binary" | cut -f1)"
if [[ -n $image ]]; then buildah rmi "$image" >/dev/null 2>&1 || true; fi
