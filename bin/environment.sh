# Makes virtual environments and sets $python; sourced by bin/demo, bin/test
# and .ci/run from the repository root.

# Prints the Python to use: $PYTHON if it is set, else the newest that serves.
find_python() {
    first_of "3.11 3.12 3.13" \
        ${PYTHON:-python3.13 python3.12 python3.11 python3} && return
    echo "Python 3.11, 3.12 or 3.13 is needed, and" \
        "${PYTHON:-none on the PATH} is not; install one or name it:" \
        "PYTHON=/path/to/python3 $0" >&2
    return 1
}

# Prints a Python 3.11: $PYTHON if it is one, else that on the PATH. None fails.
find_python_3_11() {
    first_of 3.11 ${PYTHON:-} python3.11
}

# first_of VERSIONS PYTHON...: prints the first that runs and is one of them.
first_of() {
    local versions=$1 candidate
    shift
    for candidate in "$@"; do
        if "$candidate" -c "import sys
version = '%d.%d' % sys.version_info[:2]
sys.exit(version not in '$versions'.split())" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# make_environment FILE...: installs the requirement files into .venv.
make_environment() {
    make_environment_in .venv find_python "$@"
}

# make_environment_in DIRECTORY FINDER FILE...: installs the requirement files
# there; the function FINDER prints the Python that a new environment is of.
make_environment_in() {
    local directory=$1 finder=$2
    shift 2
    python=$PWD/$directory/bin/python
    # Without a working pip it was left half made, or its Python has gone.
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        local base
        base=$("$finder") || return 1
        echo "\$ $base -m venv --clear $directory"
        "$base" -m venv --clear "$directory" || {
            echo "Python's venv module is needed (on Debian and Ubuntu:" \
                "apt install python3-venv)." >&2
            return 1
        }
    fi
    # One stamp per set of files, written when its installation has ended well.
    local wanted stamp file
    wanted=$(cat "$@" | cksum)
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
