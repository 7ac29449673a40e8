#!/bin/sh
# make offline: `offline.sh FOLDER [PLATFORM...]` puts into FOLDER, which is made anew, all that a machine without a network
# needs for the course. Only wheels are downloaded, from where pip and uv are told to look. Until all is there, a FOLDER that was
# made before stays.
set -eu
bin=.venv/bin
rooms=$(dirname "$0")
folder=$1
shift
ask() { "$bin/python" -m ckptlab.course.editions.wheels "$@"; }
anew() { "$bin/python" -m ckptlab.course.editions.anew "$@"; }
python=$("$bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
here=$(ask here)
platforms=${*:-$here}
anew check "$folder"
work=$(mktemp -d)
new=$folder.new-$$
trap 'rm -rf "$work" "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

for platform in $platforms; do ask tags "$platform" >"$work/$platform"; done
ask wanted >"$work/wanted"
ask lock >"$work/lock"

# Without a network pip's last word is of versions that conflict, so that this has to be said for it.
online() {
  "$@" 2>"$work/errors" && return
  grep -v ^WARNING "$work/errors" >&2 || true
  if grep -qiE "connection broken|failed to fetch|dns error|name resolution" "$work/errors"; then
    echo "error: the package index could not be reached. Is there a network?" >&2
  else
    echo "error: not all wheels were found. If torch came from a place of its own, as the CPU build does, name it:" >&2
    echo "PIP_EXTRA_INDEX_URL=... make offline" >&2
  fi
  return 1
}
# pip asks what is required on this machine, uv what is required on another one.
pins() {
  online env "MACOSX_DEPLOYMENT_TARGET=$(ask macos)" "$bin/uv" pip compile "$work/wanted" --constraint constraints.txt \
    --python-platform "$(ask uv "$1")" --python-version "$python" --no-annotate --no-header --no-emit-index-url --quiet
}
download() {
  online "$bin/pip" download --quiet --dest "$new/wheels" --only-binary :all: --python-version "$python" "$@"
}

mkdir -p "$new/course" "$new/wheels"
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
"$bin/python" -m ckptlab.course.editions html "$new/html" >"$work/said"
tar -c --exclude __pycache__ --exclude .ipynb_checkpoints -f - ckptlab labs quizzes LICENSE README.md constraints.txt pyproject.toml \
  | tar -x -f - -C "$new/course"
cp "$rooms/start.sh" "$new/start.sh"
size=$(du -sh "$new" | cut -f 1)
cat >"$new/README.md" <<END
# The course, without a network

For Python $python with venv, on $platforms. $(ask systems).

1. Copy this folder ($size) to a disk of the machine, to a place where it stays.
2. In a terminal, in the folder: \`sh start.sh\`. The first time it sets up \`.venv\`, which takes a minute or two; then it
   opens JupyterLab. What you write is in \`course/my-labs/\`. A Python under another name: \`PYTHON=/path/to/it sh start.sh\`.

To read the labs without Python, on a phone too: \`html/index.html\`.
END
anew put "$new" "$folder"
echo "$folder: $size. What to do with it: $folder/README.md"
