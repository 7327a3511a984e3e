#!/usr/bin/env bash
# Installs what is missing on a Debian machine: setup.sh build|deb|static|demo|demo-cluster|test|bench|long. Does nothing, and needs no root, where all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}

say() { printf 'setup: %s\n' "$*" >&2; }

# proof:package. A proof is a file, a program, or what a program must be: static=PROGRAM, or PROGRAM=WORD that its --version or -V says,
# because packages that share a program's name do not share what it can do.
libnm="pkg-config:pkg-config /usr/include/libnm/NetworkManager.h:libnm-dev"
need_build="cc:gcc /usr/include/stdio.h:libc6-dev make:make cmake:cmake perl:perl curl:curl /etc/ssl/certs/ca-certificates.crt:ca-certificates"
need_deb="$need_build $libnm strip:binutils dpkg-shlibdeps:dpkg-dev"
need_static="$need_build strip:binutils musl-gcc:musl-tools file:file ip:iproute2 ping=iputils:iputils-ping unshare:util-linux"
# Compilers of C for the other machines that scripts/targets looks at.
need_targets="aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu /usr/aarch64-linux-gnu/include/stdio.h:libc6-dev-arm64-cross \
arm-linux-gnueabihf-gcc:gcc-arm-linux-gnueabihf /usr/arm-linux-gnueabihf/include/stdio.h:libc6-dev-armhf-cross musl-gcc:musl-tools"
need_demo="$need_build ip:iproute2 tc:iproute2 nft:nftables ping=iputils:iputils-ping /usr/bin/python3:python3 openssl:openssl"
postgresql=/usr/share/doc/postgresql:postgresql
need_demo_cluster="$need_build ip:iproute2 setpriv:util-linux $postgresql"
need_test="$need_demo $libnm musl-gcc:musl-tools dpkg-shlibdeps:dpkg-dev /usr/lib/ipsec/charon:strongswan-charon swanctl:strongswan-swanctl \
/usr/lib/ipsec/plugins/libstrongswan-openssl.so:libstrongswan-standard-plugins \
/usr/lib/ipsec/plugins/libstrongswan-ctr.so:libstrongswan-extra-plugins \
/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so:libcharon-extra-plugins \
/usr/lib/ipsec/plugins/libstrongswan-eap-mschapv2.so:libcharon-extauth-plugins \
/usr/lib/python3/dist-packages/dbusmock/__init__.py:python3-dbusmock \
qemu-system-x86_64:qemu-system-x86 static=busybox:busybox-static hostapd:hostapd freeradius:freeradius /usr/lib/freeradius/rlm_eap_mschapv2.so:freeradius wpa_supplicant:wpasupplicant iw:iw dash:dash \
modprobe=kmod:kmod depmod=kmod:kmod cpio=GNU:cpio iasl:acpica-tools wg:wireguard-tools tshark:tshark setpriv:util-linux unshare:util-linux \
softhsm2-util:softhsm2 dbus-daemon:dbus-daemon dbus-send:dbus-bin dnsmasq:dnsmasq-base sysctl:procps strip:binutils git:git chromium:chromium zstd:zstd \
$postgresql bird:bird2"
need_bench="$need_test wireguard-go:wireguard-go iperf3:iperf3"
need_long="$need_test $need_targets java:openjdk-17-jre-headless /usr/share/doc/python3-venv:python3-venv debootstrap:debootstrap lintian:lintian \
systemd-nspawn:systemd-container"
case $what in
  build) need=$need_build ;; deb) need=$need_deb ;; static) need=$need_static ;; demo) need=$need_demo ;; demo-cluster) need=$need_demo_cluster ;; test) need=$need_test ;; bench) need=$need_bench ;; long) need=$need_long ;;
  *) say "unknown set '$what': build, deb, static, demo, demo-cluster, test, bench or long"; exit 2 ;;
esac

# Programs for the administrator are not on an ordinary user's PATH.
PATH=$PATH:/usr/sbin:/sbin
says() { { "$1" --version || "$1" -V; } 2>/dev/null </dev/null || true; }
proved() {
  case $1 in
    /*) [ -e "$1" ] ;;
    static=*) [[ $(ldd "$(command -v "${1#*=}")" 2>&1 || true) == *'not a dynamic executable'* ]] ;;
    *=*) [[ $(says "${1%%=*}") == *"${1#*=}"* ]] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}
missing=()
find_missing() {
  missing=()
  for pair in $need; do
    package=${pair##*:}
    proved "${pair%:*}" || [[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
  done
}
find_missing
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  root=(env DEBIAN_FRONTEND=noninteractive); [ "$(id -u)" = 0 ] || root=(sudo "${root[@]}")
  command -v apt-get >/dev/null || { say "no apt-get here: install these by hand: ${missing[*]}"; exit 1; }
  log=$(mktemp)
  if ! { "${root[@]}" apt-get update && "${root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -20 "$log" >&2; rm -f "$log"; say "apt-get failed"; exit 1
  fi
  rm -f "$log"
  # The tests run servers of their own; Debian's packages start one for good.
  if [[ " ${missing[*]} " == *" freeradius "* ]] && [ -d /run/systemd/system ]; then
    "${root[@]}" systemctl disable --now --quiet freeradius || true
  fi
  if [[ " ${missing[*]} " == *" postgresql "* ]] && [ -d /run/systemd/system ]; then
    "${root[@]}" systemctl disable --now --quiet postgresql || true
  fi
  if [[ " ${missing[*]} " == *" bird2 "* ]] && [ -d /run/systemd/system ]; then
    "${root[@]}" systemctl disable --now --quiet bird || true
  fi
  hash -r
  wanted=${missing[*]}
  find_missing
  [ ${#missing[@]} -eq 0 ] || { say "$wanted installed, but what is needed of ${missing[*]} is still not found"; exit 1; }
fi

# The virtual machine with a radio: Debian's kernel and NetworkManager, fetched and not installed. Tests that lack them say so.
case $what in test | bench | long)
  interop/vm/kernel governors >/dev/null 2>&1 || { say "fetching a kernel for the virtual machine (70 MB)"; interop/vm/kernel fetch >/dev/null; } ||
    say "no kernel: the tests in a virtual machine will be skipped"
  interop/vm/networkmanager check 2>/dev/null || { say "fetching NetworkManager for the virtual machine (4 MB)"; interop/vm/networkmanager fetch; } ||
    say "no NetworkManager: its test in a virtual machine will be skipped"
  interop/vm/resolved check 2>/dev/null || { say "fetching systemd-resolved for the virtual machine (1 MB)"; interop/vm/resolved fetch; } ||
    say "no systemd-resolved: its test in a virtual machine will be skipped"
  interop/vm/prometheus check 2>/dev/null || { say "fetching Prometheus for the test of daemon.metrics (20 MB)"; interop/vm/prometheus fetch; } ||
    say "no Prometheus: its test will be skipped"
  interop/vm/l2tp check 2>/dev/null || { say "fetching xl2tpd and pppd for the virtual machine (1 MB)"; interop/vm/l2tp fetch; } ||
    say "no xl2tpd: its test in a virtual machine will be skipped"
  interop/vm/libreswan check 2>/dev/null || { say "fetching libreswan for the virtual machine (26 MB)"; interop/vm/libreswan fetch; } ||
    say "no libreswan: its tests in a virtual machine will be skipped"
  interop/vm/strongswan6 check 2>/dev/null || { say "fetching strongSwan 6 for the hybrid key exchange (30 MB)"; interop/vm/strongswan6 fetch; } ||
    say "no strongSwan 6: its tests will be skipped" ;;
esac

# Rust: any toolchain at least as new as Cargo.toml asks for, with the lints and the formatter.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
PATH=$HOME/.cargo/bin:$PATH
rust() { { cargo clippy --version && cargo fmt --version && rustc --version; } 2>/dev/null | awk '$1 == "rustc" {print $2}' || true; }
new_enough() { [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$wanted" "${have%%-*}" | sort -V | head -1)" = "$wanted" ]; }
have=$(rust)
if ! new_enough; then
  say "installing Rust (found '${have:-none}', need $wanted)"
  if ! command -v rustup >/dev/null; then
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy -c rustfmt --no-modify-path || true
  fi
  if rustup toolchain install stable --profile minimal -c clippy -c rustfmt; then rustup default stable || true; fi
  hash -r
  have=$(rust)
  new_enough || {
    say "Dormouse needs Rust $wanted or later with clippy and rustfmt; here is ${have:-none} ($(command -v rustc || echo "no rustc"))."
    say "With rustup (https://rustup.rs): rustup toolchain install stable -c clippy -c rustfmt && rustup default stable. Where another rustc comes first in"
    say "PATH, or RUSTUP_TOOLCHAIN or a rust-toolchain.toml above this directory chooses one, that one counts."
    exit 1
  }
fi

# The standard library of other machines. Without it the static programs cannot be built; what scripts/targets checks says what it leaves out.
targets=()
case $what in static | test) targets=("$(uname -m)-unknown-linux-musl") ;; long) mapfile -t targets < <(scripts/targets --list) ;; esac
for target in "${targets[@]}"; do
  [ ! -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] || continue
  say "adding Rust's standard library for $target"
  rustup target add "$target" >/dev/null 2>&1 && continue
  say "Rust's standard library for $target is not here and cannot be fetched: rustup target add $target"
  [ "$what" != static ] || exit 1
done

# That of this machine as source: scripts/small builds it for size.
if [ "$what" = static ] && [ ! -d "$(rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
  say "adding the source of Rust's standard library"
  rustup component add rust-src >/dev/null 2>&1 ||
    say "It cannot be fetched (rustup component add rust-src): the static programs do without, the small daemon (make small) does not."
fi
