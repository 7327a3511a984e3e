# In the virtual machine: a device with a real 802.11 stack (mac80211_hwsim, wpa_supplicant) behind an access point (hostapd) that is also the
# VPN gateway, with two CHILD SAs for the same traffic: one whole, and one in zones for a weak signal, which the gateway follows. The
# simulated radio's signal is set; the daemon reads what iw reads, and the flow moves. Every step says "ok:"; the first that fails ends the test.
. /lib.sh
mkdir -p $device $gateway
logs="$device/log $gateway/log /tmp/hostapd.log /tmp/wpa.log"
evidence() { iw dev wlan1 link; dm status; cat /sys/kernel/debug/ieee80211/phy*/hwsim/rx_rssi; }
ping_gateway() { ping -c 1 -W 1 10.99.0.1; }

# --- the air: phy0 is the access point's, phy1 the device's
modprobe mac80211_hwsim radios=2 2>/dev/null; modprobe tun; modprobe ccm; modprobe ctr
mount -t debugfs debugfs /sys/kernel/debug || fail "no debugfs"
[ -e /sys/kernel/debug/ieee80211/phy0/hwsim/rx_rssi ] || fail "the signal of these radios cannot be set"
access_point
gw ip link set lo up
gw ip addr add 10.99.0.1/24 dev lo
printf '%s\n' 'network={' 'ssid="burrow"' 'psk="sevensleepers"' scan_freq=2412 '}' >/tmp/wpa.conf
wpa_supplicant -B -i wlan1 -D nl80211 -c /tmp/wpa.conf -f /tmp/wpa.log || fail "wpa_supplicant"
ip addr add 10.1.0.2/24 dev wlan1
until_ 30 ping -c 1 -W 1 10.1.0.1 || fail "nothing passes the air"

# --- the tunnel
{ settings $gateway; end gateway gateway.test "*.test"; printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' \
  'remote = ["dynamic"]' '[connection.peer.children.repaired]' 'protection = "zoned"' 'choose = { as_peer = true }' \
  'local = ["10.99.0.0/24"]' 'remote = ["dynamic"]' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]'; } >$gateway/dormouse.toml
{ settings $device; client; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' '[connection.peer.children.repaired]' \
  'protection = "zoned"' 'choose = { signal_below = -60 }' 'remote = ["10.99.0.0/24"]' '[sleep]' 'mode = "performance"'; } >$device/dormouse.toml
run_daemon $gateway ip netns exec gateway
run_daemon $device
dm up peer || fail "no tunnel"
until_ 10 ping_gateway || fail "nothing passes the tunnel"
both() { dm status --json | grep -q '"takes_all"'; }
until_ 20 both || fail "there is no CHILD SA in zones"

# --- what is read, and what it does
# strength DBM: what the radios say of each other, before the power of transmission is added. This kernel's file takes no sign.
strength() { for phy in phy0 phy1; do echo $1 2>/dev/null >/sys/kernel/debug/ieee80211/$phy/hwsim/rx_rssi || wrapped $1 >/sys/kernel/debug/ieee80211/$phy/hwsim/rx_rssi; done; }
wrapped() { case $1 in -50) echo 18446744073709551566 ;; -100) echo 18446744073709551516 ;; esac; }
iw_says() { iw dev wlan1 link | sed -n 's/.*signal: \(-[0-9]*\) dBm.*/\1/p'; }
daemon_says() { dm status --json | sed -n 's/.*"signal_dbm":\(-[0-9]*\).*/\1/p'; }
weak() { local dbm=$(iw_says); [ -n "$dbm" ] && [ "$dbm" -lt -60 ]; }
strong() { local dbm=$(iw_says); [ -n "$dbm" ] && [ "$dbm" -ge -54 ]; }
same() { local dbm=$(iw_says); [ -n "$dbm" ] && [ "$dbm" = "$(daemon_says)" ]; }
zoned() { dm status --json | sed -n "s/.*\"signal_dbm\":-[0-9]*,\"traffic\":{[^}]*\"packets_$1\":\([0-9]*\).*/\1/p"; }
taken() { dm status --json | grep -q "\"takes_all\":$1"; }

strength -50
until_ 10 strong || fail "the signal is weak: $(iw_says)"
until_ 10 same || fail "iw: $(iw_says), the daemon: $(daemon_says)"
taken false || fail "a good signal, and zones"
ping -c 4 -i 0.3 -W 5 10.99.0.1 >/dev/null || fail "packets are lost"
before_out=$(zoned out) before_in=$(zoned in)
[ "${before_out:-0}" = 0 ] && [ "${before_in:-0}" = 0 ] || fail "a good signal, and packets in zones: ${before_out:-0}, ${before_in:-0}"
ok "at $(iw_says) dBm, as iw and the daemon say, packets go whole, both ways"

strength -100
until_ 10 weak || fail "the signal is not weak: $(iw_says)"
# Nothing asks for the status meanwhile: the packets themselves have the signal read.
sleep 1
ping -c 5 -i 0.3 -W 5 10.99.0.1 >/tmp/ping.log && grep -q ' 0% packet loss' /tmp/ping.log || fail "packets are lost: $(tail -n 2 /tmp/ping.log)"
sent=$(zoned out) came=$(zoned in)
[ "${sent:-0}" -ge 4 ] && [ "${came:-0}" -ge 4 ] || fail "a weak signal, and of five packets ${sent:-0} went in zones, ${came:-0} came"
until_ 10 same || fail "iw: $(iw_says), the daemon: $(daemon_says)"
dm status | grep "(now $(daemon_says) dBm, taken)" || fail "status does not say so"
ok "at $(iw_says) dBm they go in zones, both ways: $sent and $came of five"

strength -50
until_ 10 strong || fail "the signal stays weak: $(iw_says)"
sleep 1
ping -c 5 -i 0.3 -W 5 10.99.0.1 >/dev/null || fail "packets are lost"
[ $(($(zoned out) - sent)) -le 1 ] && [ $(($(zoned in) - came)) -le 1 ] || fail "the signal is good again, and packets go in zones: $(zoned out), $(zoned in)"
taken false || fail "zones with a good signal"
ok "at $(iw_says) dBm they go whole again"
echo "PASS"
