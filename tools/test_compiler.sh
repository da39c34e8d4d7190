#!/bin/bash
# test_compiler.sh CLANG [CCACHE] -- COMPILER ARGUMENT...: compiles with CLANG what CMake would compile with COMPILER. The dev preset puts it
# before the compiler of test programs: clang reads unoptimized code in half of g++'s time, and what it compiles runs with libraries
# that g++ has compiled. CMake itself knows one compiler for all of a tree. Without lines for a debugger, which are a fifth of clang's time:
# gtest names the line of what failed, and the presets asan and tsan have them for what crashes.
set -euo pipefail
command=()
while [ "$1" != -- ]; do
  command=("$1" "${command[@]}")
  shift
done
shift 2

output='' header=''
previous=''
for argument in "$@"; do
  case $previous in
    -o) output=$argument ;;
    --param) previous=''; continue ;;  # g++'s own
  esac
  previous=$argument
  case $argument in
    --param | -fpch-preprocess | -fno-gnu-unique | -Wno-restrict | -Wno-stringop-* | -Wno-subobject-linkage) ;;
    c++-header)
      header=yes
      command+=("$argument")
      ;;
    *) command+=("$argument") ;;
  esac
done
command+=(-g0 -Xclang -fno-pch-timestamp)  # so that ccache may keep what reads a precompiled header
if [ -n "$header" ]; then
  rm -f "$output"  # clang would read the old one while it makes the new
  command+=(-fpch-instantiate-templates)
fi
exec "${command[@]}"
