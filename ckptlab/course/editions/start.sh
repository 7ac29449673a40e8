#!/bin/sh
# Opens the course. The first time it sets up .venv from wheels/, without a network; that takes a minute or two.
set -eu
cd "$(dirname "$0")"
version=$(ls wheels | sed -n 's/^torch-.*-cp3\([0-9]*\)-.*/3.\1/p' | head -n 1)
python=${PYTHON:-$(command -v "python$version" || echo python3)}

if [ ! -e .venv/ready ]; then
  "$python" -c "import sys, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" \
    || { echo "Python $version with venv is needed. If it is not on the path: PYTHON=/path/to/it sh start.sh"; exit 1; }
  echo "Setting up .venv, once."
  "$python" -m venv .venv
  .venv/bin/python -m pip --isolated --disable-pip-version-check install --quiet --no-index --find-links "$PWD/wheels" \
    --editable 'course[course]' \
    || { echo "README.md says for which machines the wheels are; is this one of them?"; exit 1; }
  touch .venv/ready
fi
exec .venv/bin/python -m ckptlab.course.start "$@"
