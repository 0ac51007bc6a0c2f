# Sourced by run.sh and test.sh: `ensure_venv EXTRA` makes .venv in the clone, once, and installs
# the project with an extra into it, again whenever pyproject.toml has changed.

ensure_venv() {
  local extra=$1 stamp=".venv/.fraxenv-$1" python
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    echo "Making a virtual environment in .venv with $("$python" --version)."
    "$python" -m venv .venv
    # Python's own pip may be years old, and takes twice the time.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip || true
  fi
  if ! cmp -s pyproject.toml "$stamp"; then
    echo "Installing fraxenv[$extra] into .venv; this takes a few minutes the first time."
    # What is never imported need not be compiled.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$extra]"
    cp pyproject.toml "$stamp"
  fi
}

find_python() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11 python; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "fraxenv needs Python 3.11 or newer; none was found on the PATH. Install one and try again." >&2
  exit 1
}
