#!/bin/sh
# Puts the server and the command line with the shared libraries they need into build/carry, for a machine of the same
# architecture, with a C library that is not older, where they cannot be built.
#
#     tests/gpu/bundle.sh [FOLDER WITH lockstepd AND lockstep, default build/bin [MORE PROGRAMS OF IT]]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
from=${1:-$root/build/bin}
to=$root/build/carry
rm -rf "$to"
mkdir -p "$to/bin" "$to/lib" "$to/programs"
[ $# -gt 0 ] && shift
for program in lockstepd lockstep "$@"; do
  strip -o "$to/programs/$program" "$from/$program"
  # The C library stays behind: it belongs to the loader of the machine.
  ldd "$from/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
    grep -Ev '/(libc|libm|libpthread|libdl|librt|libresolv)\.so\.' | while read -r library; do
    cp -L "$library" "$to/lib/"
  done
  cat > "$to/bin/$program" <<'WRAPPER'
#!/bin/sh
here=$(cd "$(dirname "$0")/.." && pwd)
LD_LIBRARY_PATH=$here/lib exec "$here/programs/$(basename "$0")" "$@"
WRAPPER
  chmod +x "$to/bin/$program"
done
if [ -d "$root/web/dist" ]; then cp -R "$root/web/dist" "$to/web"; fi
"$to/bin/lockstepd" --help > /dev/null
"$to/bin/lockstep" --help > /dev/null
du -sh "$to"
