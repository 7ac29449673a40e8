#!/bin/sh
# make offline: `offline.sh FOLDER [PLATFORM...]` puts into FOLDER, which is made anew, all that a machine without a network
# needs for the course. Only wheels are downloaded, from where pip and uv are told to look.
set -eu
bin=.venv/bin
rooms=$(dirname "$0")
folder=$1
shift
ask() { "$bin/python" -m ckptlab.course.editions.wheels "$@"; }
python=$("$bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
here=$(ask here)
platforms=${*:-$here}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for platform in $platforms; do ask tags "$platform" >"$work/$platform"; done
ask wanted >"$work/wanted"
ask lock >"$work/lock"

# pip asks what is required on this machine, uv what is required on another one.
pins() {
  case $1 in linux_*) name=${1#linux_}-manylinux_2_28 ;; *) name=aarch64-apple-darwin ;; esac
  MACOSX_DEPLOYMENT_TARGET=14.0 "$bin/uv" pip compile "$work/wanted" --constraint constraints.txt \
    --python-platform "$name" --python-version "$python" --no-annotate --no-header --no-emit-index-url --quiet
}
download() {
  "$bin/pip" download --quiet --dest "$folder/wheels" --only-binary :all: --python-version "$python" "$@" || {
    echo "error: pip did not find all wheels. If torch came from a place of its own, as the CPU build does, name it:" >&2
    echo "PIP_EXTRA_INDEX_URL=... make offline" >&2
    return 1
  }
}

rm -rf "$folder"
mkdir -p "$folder/course" "$folder/wheels"
for platform in $platforms; do
  echo "Wheels for Python $python on $platform"
  if [ "$platform" = "$here" ]; then
    set -- --constraint "$work/lock" --requirement "$work/wanted"
  else
    pins "$platform" >"$work/pins"
    set -- --no-deps --requirement "$work/pins"
  fi
  # shellcheck disable=SC2046  # one option a line
  download $(cat "$work/$platform") "$@"
done
"$bin/python" -m ckptlab.course.editions html "$folder/html" >"$work/said"
tar -c --exclude __pycache__ --exclude .ipynb_checkpoints -f - ckptlab labs LICENSE README.md constraints.txt pyproject.toml \
  | tar -x -f - -C "$folder/course"
cp "$rooms/start.sh" "$folder/start.sh"
size=$(du -sh "$folder" | cut -f 1)
cat >"$folder/README.md" <<END
# The course, without a network

For Python $python with venv, on $platforms. Linux with glibc 2.28 (Debian 10, Ubuntu 20.04) or newer, macOS 14 or newer;
Windows: in WSL 2.

1. Copy this folder ($size) to a disk of the machine, to a place where it stays.
2. In a terminal, in the folder: \`sh start.sh\`. The first time it sets up \`.venv\`, which takes a minute or two; then it
   opens JupyterLab. What you write is in \`course/my-labs/\`. A Python under another name: \`PYTHON=/path/to/it sh start.sh\`.

To read the labs without Python, on a phone too: \`html/index.html\`.
END
echo "$folder: $size. What to do with it: $folder/README.md"
