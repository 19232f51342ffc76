#!/usr/bin/env bash
# Installs build/packages/*.deb in a bare Debian 12 tree, uses them as a user would, and purges them.
# Root, debootstrap and a network; docs/deploy/packages.md.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d /var/tmp/telegrad-packages.XXXXXX)
tree=$work/tree
finish() {
  for each in proc sys dev/shm dev; do ! mountpoint -q "$tree/$each" || umount -l "$tree/$each"; done
  rm -rf --one-file-system "$work"
}
trap finish EXIT
mirror=$(grep -hs '^URIs:.*debian$' /etc/apt/sources.list.d/*.sources | awk '{print $2; exit}')
debootstrap --variant=minbase bookworm "$tree" ${mirror:+"$mirror"} >"$work/log" 2>&1 ||
  { tail -5 "$work/log"; exit 1; }
cp /etc/resolv.conf /etc/hosts "$tree/etc/"
cp /etc/apt/apt.conf.d/99* "$tree/etc/apt/apt.conf.d/" 2>/dev/null || true
mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys" && mount --make-rslave "$tree/sys"
mount --bind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/dev/shm"
mkdir "$tree/packages"
cp "$root"/build/packages/*.deb "$tree/packages"
cp -r "$root/tests/install/consumer" "$tree/consumer"

inside() { chroot "$tree" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive bash -euc "$1"; }
step() { echo "== $1"; inside "$2" >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }; }

inside 'dpkg-query -W -f "\${Package}\n" | sort' >"$work/before"
step "install" 'apt-get update -qq && apt-get install -y -qq --no-install-recommends /packages/*.deb \
  libopenblas0-pthread g++ cmake make'
step "programs have versions and pages" 'for each in train server perf topo launch; do
  telegrad-$each --version; test -s /usr/share/man/man1/telegrad-$each.1.gz; done'
step "two workers train" 'cd /tmp && telegrad-launch -n 2 -- telegrad-train --gc-type int2 \
  --network mlp --num-epochs 1 --num-batches 10'
step "a project in C and C++ builds" 'headers=$(cd /usr/include/telegrad && find . -name "*.h")
  mkdir -p /headers && for each in $headers; do echo "#include \"${each#./}\""; done >/headers/all_headers.h
  cmake -S /consumer -B /built -D ALL_HEADERS_DIR=/headers && cmake --build /built && /built/consumer
  c++ -x c++ /consumer/main_c.c -o /built/main_c $(pkg-config --cflags --libs telegrad) && /built/main_c'
step "Python finds its library" 'cd /tmp && python3 -c "import telegrad; print(telegrad.__version__)"'
step "purge" 'apt-get purge -y -qq telegrad libtelegrad2 libtelegrad-dev python3-telegrad telegrad-doc'
left=$(cd "$tree" && find usr etc var/lib -path usr/share/doc -prune -o -name '*telegrad*' -print)
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo "== all passed, nothing is left"
