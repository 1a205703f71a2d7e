# Makes virtual environments and sets $python; sourced by bin/demo, bin/test
# and .ci/run from the repository root.

# Without compiled files a program takes ten seconds to load TensorFlow, not four.
unset PYTHONDONTWRITEBYTECODE

# Prints the Python to use: $PYTHON if it is set, else the newest that serves.
find_python() {
    local candidate
    set -- python3.13 python3.12 python3.11 python3
    [ -z "${PYTHON:-}" ] || set -- "$PYTHON"
    for candidate in "$@"; do
        if "$candidate" -c "import sys
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 3.11, 3.12 or 3.13 is needed, and" \
        "${PYTHON:-none on the PATH} is not; install one or name it:" \
        "PYTHON=/path/to/python3 $0" >&2
    return 1
}

# make_environment FILE...: installs the requirement files into .venv.
make_environment() {
    make_environment_in .venv "$@"
}

# make_environment_in DIRECTORY FILE...: installs the requirement files there.
make_environment_in() {
    local directory=$1
    shift
    python=$PWD/$directory/bin/python
    # Cleared only where no Python runs; environments of uv have no pip.
    if "$python" -c "" 2>/dev/null; then
        "$python" -m pip --version >/dev/null 2>&1 ||
            "$python" -m ensurepip >/dev/null 2>&1 || {
            echo "$directory has no pip, and its Python cannot install it" \
                "(on Debian and Ubuntu: apt install python3-venv); install" \
                "it there, or remove $directory." >&2
            return 1
        }
    else
        local base
        base=$(find_python) || return 1
        echo "\$ $base -m venv --clear $directory"
        "$base" -m venv --clear "$directory" || {
            echo "Python's venv module is needed (on Debian and Ubuntu:" \
                "apt install python3-venv)." >&2
            return 1
        }
    fi
    # One stamp per set of files, written when its installation has ended well.
    local wanted stamp file
    # The files name others, which need not be there.
    wanted=$( (cat "$@" requirements*.txt 2>/dev/null || true) | cksum)
    stamp=$directory/installed-$(echo "$*" | tr ' /' '--')
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        local arguments=()
        for file in "$@"; do arguments+=(-r "$file"); done
        echo "\$ $directory/bin/python -m pip install ${arguments[*]}"
        # Python compiles what is imported; all files would take a minute.
        "$python" -m pip install --disable-pip-version-check \
            "${arguments[@]}" --no-compile
        echo "$wanted" >"$stamp"
    fi
}
