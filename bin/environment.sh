# Makes the virtual environment .venv and sets $python; sourced by bin/demo and
# bin/test from the repository root. $1...: requirement files.

find_python() {
    for candidate in "${PYTHON:-}" python3.13 python3.12 python3.11 python3; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "Python 3.11, 3.12 or 3.13 is needed, and none was found on the" \
        "PATH; install one or name it: PYTHON=/path/to/python $0" >&2
    return 1
}

make_environment() {
    python=$PWD/.venv/bin/python
    local wanted
    wanted=$(cat "$@" | cksum)
    if [ ! -x "$python" ]; then
        local base
        base=$(find_python)
        echo "\$ $base -m venv .venv"
        "$base" -m venv .venv || {
            echo "Python's venv module is needed (on Debian and Ubuntu:" \
                "apt install python3-venv)." >&2
            return 1
        }
    fi
    # One stamp per set of files; written when the installation has ended well.
    local stamp
    stamp=.venv/installed-$(echo "$*" | tr ' /' '--')
    if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
        local arguments=()
        for file in "$@"; do arguments+=(-r "$file"); done
        echo "\$ .venv/bin/python -m pip install ${arguments[*]}"
        "$python" -m pip install --quiet --disable-pip-version-check \
            "${arguments[@]}"
        echo "$wanted" >"$stamp"
    fi
}
