#!/usr/bin/env bash
# Makes the source archive, Debian's packages and an RPM in build/packages: ./telegrad package calls
# it. Its argument, if any, is a build folder that is whole, of the preset package.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
root=$PWD out=$PWD/build/packages built=${1:+$(readlink -f "$1")}
version=$(sed -n 's/^project(telegrad VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
commit_time=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$commit_time}
umask 022
rm -rf "$out"
mkdir -p "$out"

# The archive: what is committed, or this folder where there is no git.
archive=$out/telegrad-$version.tar.gz
if git rev-parse HEAD >/dev/null 2>&1; then
  git archive --prefix="telegrad-$version/" HEAD | gzip -n9 >"$archive"
else
  tar --exclude=./build --transform "s|^\.|telegrad-$version|" --sort=name --owner=0 --group=0 \
    --mtime="@$SOURCE_DATE_EPOCH" -c . | gzip -n9 >"$archive"
fi
(cd "$out" && sha256sum "telegrad-$version.tar.gz" >SHA256SUMS)

make_debs() {
  local tree=$out/tree/telegrad-$version
  mkdir -p "$out/tree"
  tar -x -C "$out/tree" -f "$archive"
  cp -r "$root/deploy/packages/debian" "$tree/debian"
  cat >"$tree/debian/changelog" <<END
telegrad ($version) unstable; urgency=medium

  * What is new: CHANGELOG.md.

 -- $(sed -n 's/^Maintainer: //p' "$tree/debian/control")  $(date -uRd "@$SOURCE_DATE_EPOCH")
END
  (cd "$tree" && TELEGRAD_BUILD=$built dpkg-buildpackage -b -us -uc ${built:+-d}) \
    >"$out/deb.log" 2>&1 || { tail -20 "$out/deb.log"; return 1; }
  mv "$out"/tree/*.deb "$out"/tree/*.changes "$out"/tree/*.buildinfo "$out"
  lintian --allow-root --fail-on error,warning "$out"/*.changes
}

make_rpm() {
  rpmbuild -bb --nodeps --define "_topdir $out/rpm" --define "_sourcedir $out" \
    --define "telegrad_version $version" --define "telegrad_build $built" \
    --define "_rpmdir $out" \
    --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    "$root/deploy/packages/telegrad.spec" >"$out/rpm.log" 2>&1 ||
    { tail -20 "$out/rpm.log"; return 1; }
}

make_debs
if command -v rpmbuild >/dev/null; then make_rpm; else echo "no rpmbuild here: no RPM"; fi
rm -rf "$out/tree" "$out/rpm"
cd "$out"
for each in *.tar.gz *.deb *.rpm; do
  [ ! -f "$each" ] || printf '%s  %8s kB  %s\n' "$(sha256sum "$each" | cut -d' ' -f1)" \
    $(($(stat -c %s "$each") / 1000)) "$each"
done
