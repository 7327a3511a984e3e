#!/usr/bin/env bash
# Installs what is missing on a Debian machine: setup.sh build|demo|test|bench. Does nothing, and needs no root, where all is there.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}

say() { printf 'setup: %s\n' "$*" >&2; }

# program or file that proves a package -> package
need_build="cc:gcc make:make cmake:cmake perl:perl curl:curl"
need_demo="$need_build ip:iproute2 nft:nftables ping:iputils-ping python3:python3 openssl:openssl"
need_test="$need_demo /usr/lib/ipsec/charon:strongswan-charon swanctl:strongswan-swanctl pki:strongswan-pki \
/usr/lib/ipsec/plugins/libstrongswan-openssl.so:libstrongswan-standard-plugins \
/usr/lib/ipsec/plugins/libstrongswan-ctr.so:libstrongswan-extra-plugins \
/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so:libcharon-extra-plugins \
/usr/lib/python3/dist-packages/dbusmock/__init__.py:python3-dbusmock \
qemu-system-x86_64:qemu-system-x86 busybox:busybox-static hostapd:hostapd wpa_supplicant:wpasupplicant iw:iw dash:dash \
modprobe:kmod cpio:cpio iasl:acpica-tools wg:wireguard-tools tshark:tshark setpriv:util-linux dbus-daemon:dbus-daemon dbus-send:dbus-bin chromium:chromium zstd:zstd"
need_bench="$need_test wireguard-go:wireguard-go iperf3:iperf3 pkg-config:pkg-config /usr/include/openssl/evp.h:libssl-dev"
case $what in
  build) need=$need_build ;; demo) need=$need_demo ;; test) need=$need_test ;; bench) need=$need_bench ;;
  *) say "unknown set '$what': build, demo, test or bench"; exit 2 ;;
esac

missing=()
for pair in $need; do
  probe=${pair%%:*} package=${pair##*:}
  case $probe in
    /*) [ -e "$probe" ] || missing+=("$package") ;;
    *) command -v "$probe" >/dev/null || [ -x "/usr/sbin/$probe" ] || [ -x "/sbin/$probe" ] || missing+=("$package") ;;
  esac
done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  root=(); [ "$(id -u)" = 0 ] || root=(sudo)
  command -v apt-get >/dev/null || { say "no apt-get here: install these by hand: ${missing[*]}"; exit 1; }
  export DEBIAN_FRONTEND=noninteractive
  log=$(mktemp)
  if ! { "${root[@]}" apt-get update && "${root[@]}" apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -20 "$log" >&2; rm -f "$log"; say "apt-get failed"; exit 1
  fi
  rm -f "$log"
fi

# The virtual machine with a radio: Debian's kernel and NetworkManager, fetched and not installed. Tests that lack them say so.
case $what in test | bench)
  interop/vm/kernel governors >/dev/null 2>&1 || { say "fetching a kernel for the virtual machine (70 MB)"; interop/vm/kernel fetch >/dev/null; } ||
    say "no kernel: the tests in a virtual machine will be skipped"
  interop/vm/networkmanager check 2>/dev/null || { say "fetching NetworkManager for the virtual machine (4 MB)"; interop/vm/networkmanager fetch; } ||
    say "no NetworkManager: its test in a virtual machine will be skipped"
  interop/vm/resolved check 2>/dev/null || { say "fetching systemd-resolved for the virtual machine (1 MB)"; interop/vm/resolved fetch; } ||
    say "no systemd-resolved: its test in a virtual machine will be skipped"
  interop/vm/libreswan check 2>/dev/null || { say "fetching libreswan for the virtual machine (26 MB)"; interop/vm/libreswan fetch; } ||
    say "no libreswan: its tests in a virtual machine will be skipped" ;;
esac

# Rust: any toolchain at least as new as Cargo.toml asks for.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
PATH=$HOME/.cargo/bin:$PATH
have=$(rustc --version 2>/dev/null | awk '{print $2}' || true)
if [ -z "$have" ] || [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -1)" != "$wanted" ]; then
  say "installing Rust (found '${have:-none}', need $wanted)"
  if ! command -v rustup >/dev/null; then
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy -c rustfmt --no-modify-path
  fi
  rustup toolchain install stable --profile minimal -c clippy -c rustfmt && rustup default stable
fi
