#!/bin/sh
# Checks the public interface of libcrunrt: crunrt.h compiles alone as strict C11, C17, C++11 and
# C++20, and the libraries export exactly the names in worker_runtime/crunrt.symbols.
set -eu
BUILD=${BUILD:-build}
CC=${CC:-cc}
CXX=${CXX:-c++}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

printf '#include <crunrt.h>\nint main(void) { return crunrt_last_error()[0]; }\n' > "$dir/use.c"
cp "$dir/use.c" "$dir/use.cc"
strict='-Wall -Wextra -Wpedantic -Werror -Iworker_runtime/include -fsyntax-only'
$CC -std=c11 -Wstrict-prototypes $strict "$dir/use.c"
$CC -std=c17 $strict "$dir/use.c"
$CXX -std=c++11 $strict "$dir/use.cc"
$CXX -std=c++20 $strict "$dir/use.cc"
header=worker_runtime/include/crunrt.h
if grep -nE '#include *[<"](uv|jansson|nccl|cuda|store|base|worker_runtime)' $header; then
    echo "FAIL: crunrt.h includes what a consumer does not have"
    exit 1
fi

sort worker_runtime/crunrt.symbols > "$dir/expected"
# The sanitizers and coverage add names of their own, none of which begins with crunrt.
nm -D --defined-only "$BUILD/lib/libcrunrt.so" | awk '{print $3}' |
    grep -vE '^(__|_(init|fini|edata|end)|mangle_path)' | sort > "$dir/shared"
diff -u "$dir/expected" "$dir/shared" || { echo "FAIL: libcrunrt.so exports other names"; exit 1; }
nm --defined-only --extern-only "$BUILD/lib/libcrunrt.a" | awk 'NF == 3 {print $3}' |
    grep -vE '^(__|mangle_path)' | sort > "$dir/static"
diff -u "$dir/expected" "$dir/static" || { echo "FAIL: libcrunrt.a exports other names"; exit 1; }
sed -n 's/^CRUNRT_API .*[ *]\(crunrt_[a-z0-9_]*\)(.*/\1/p' $header | sort > "$dir/declared"
diff -u "$dir/expected" "$dir/declared" || { echo "FAIL: crunrt.h declares other names"; exit 1; }
echo "PASS: $(wc -l < "$dir/expected") exported functions, header strict in C and C++"
