# In the virtual machine: a device with a real 802.11 stack (mac80211_hwsim, wpa_supplicant) behind an access point (hostapd) that is
# also the VPN gateway, in a namespace of its own. The tunnel comes up over the air; the radio is switched off by its rfkill switch,
# and on again; the session goes on, by hand and by the daemon itself. Every step says "ok:"; the first that fails ends the test with what the programs said.
. /lib.sh
mkdir -p $device $gateway
logs="/tmp/radio.log $device/log $gateway/log /tmp/hostapd.log /tmp/wpa.log"
evidence() {
  iw dev wlan1 link; ip addr show dev wlan1; ip -s link show dev dormouse0; gw ip -s link show dev dormouse0
  ip route get 10.99.0.1; gw ip route get 10.55.0.2; dm status; cat /sys/class/rfkill/*/soft
}
soft() { cat /sys/class/ieee80211/$1/rfkill*/soft; }
ping_gateway() { ping -c 1 -W 1 10.99.0.1; }
ping_air() { ping -c 1 -W 1 10.1.0.1; }

# --- the air: phy0 is the access point's, phy1 the device's, phy2 a bystander's
modprobe mac80211_hwsim radios=3 2>/dev/null; modprobe tun; modprobe ccm; modprobe ctr
[ -e /sys/class/ieee80211/phy2 ] || fail "no simulated radios"
access_point
gw ip link set lo up
gw ip addr add 10.99.0.1/24 dev lo
printf '%s\n' 'network={' 'ssid="burrow"' 'psk="sevensleepers"' scan_freq=2412 '}' >/tmp/wpa.conf
wpa_supplicant -B -i wlan1 -D nl80211 -c /tmp/wpa.conf -f /tmp/wpa.log || fail "wpa_supplicant"
ip addr add 10.1.0.2/24 dev wlan1
ip link set wlan2 up

# --- the radio, as the daemon drives it
mkfifo /tmp/orders
radio --interface wlan1 --mark /tmp/mark </tmp/orders >/tmp/radio.log 2>&1 &
radio=$!
exec 3>/tmp/orders
until_ 10 grep -q '^guard:' /tmp/radio.log || fail "no radio"
grep -q '^radio: rfkill: .*phy1.*not networkmanager (there is no D-Bus)' /tmp/radio.log || fail "another way was chosen"
until_ 30 state_is "On, attached to burrow" || fail "no association"
until_ 10 ping_air || fail "nothing passes the air"
ok "associated: $answer"

# --- the tunnel
{ settings $gateway; end gateway gateway.test "*.test"; printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' \
  'remote = ["dynamic"]' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]'; } >$gateway/dormouse.toml
{ settings $device; client; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' \
  '[sleep]' 'interface = "wlan1"' 'policy = 2'; } >$device/dormouse.toml
run_daemon $gateway ip netns exec gateway
run_daemon $device
dm up peer || fail "no tunnel"
until_ 10 ping_gateway || fail "nothing passes the tunnel"
ok "the tunnel is up over the air"

# --- asleep
dm suspend || fail "suspend"
order off
case $answer in "Off: Off, not attached") ;; *) fail "off: $answer" ;; esac
[ "$(soft phy1)" = 1 ] || fail "the radio is not blocked"
[ "$(soft phy2)" = 0 ] || fail "another radio is blocked too"
grep -q rfkill /tmp/mark || fail "nothing remembers that the radio is off"
ip link show dev wlan1 | grep -q 'state DOWN' || fail "the interface is up"
ip link show dev wlan2 | grep -q ',UP' || fail "the bystander's interface is down"
! ping_air >/dev/null 2>&1 || fail "packets pass a radio that is off"
ok "asleep: nothing passes, and only this radio is blocked"

# --- awake
order on
case $answer in "On: On"*) ;; *) fail "on: $answer" ;; esac
[ ! -s /tmp/mark ] || fail "the mark stays"
until_ 30 state_is "On, attached to burrow" || fail "no association after the sleep"
until_ 10 ping_air || fail "nothing passes the air after the sleep"
dm resume || fail "resume"
until_ 20 ping_gateway || fail "nothing passes the tunnel after the sleep"
ok "awake: associated, and the tunnel is back"
dm status | head -n 20

# --- power saving, as a calibration switches it
saves() { [ "$(iw dev wlan1 get power_save)" = "Power save: $1" ]; }
iw dev wlan1 set power_save off; saves off || fail "power saving cannot be switched here"
mkfifo /tmp/hold
radio --interface wlan1 --power-save on </tmp/hold >/tmp/save.log 2>&1 &
saver=$!
exec 4>/tmp/hold
until_ 10 saves on || fail "power saving is not switched on: $(cat /tmp/save.log)"
exec 4>&-; wait $saver
saves off || fail "power saving is not as it was"
ok "power saving was switched, and put back"

# --- what others switched off stays off
switch=$(echo /sys/class/ieee80211/phy1/rfkill*/soft)
echo 1 >"$switch"
order off; state_is "Blocked" || fail "a block by another program: $answer"
order on; [ "$(soft phy1)" = 1 ] || fail "a block by another program was undone"
echo 0 >"$switch"
ip link set wlan1 up
until_ 30 state_is "On, attached to burrow" || fail "no association after another program's block"
ok "another program's block was left alone"

# --- the daemon is killed while the radio is off
order off
[ "$(soft phy1)" = 1 ] || fail "the radio is not blocked"
kill -9 $radio
unblocked() { [ "$(soft phy1)" = 0 ]; }
until_ 20 unblocked || fail "the guard did not put the radio back on"
until_ 10 test ! -s /tmp/mark || fail "the mark stays"
until_ 30 ping_air || fail "nothing passes the air after the crash"
ok "killed while asleep: the guard put the radio back on"

# --- the guard is killed too: the next start makes it good
radio --interface wlan1 --mark /tmp/mark </tmp/orders >/tmp/radio.log 2>&1 &
radio=$!
exec 3>/tmp/orders
until_ 10 grep -q '^guard:' /tmp/radio.log || fail "no radio"
guard=$(sed -n 's/^guard: //p' /tmp/radio.log)
order off
kill -9 "$guard" $radio
sleep 0.5
[ "$(soft phy1)" = 1 ] || fail "another program put the radio back on"
radio --interface wlan1 --mark /tmp/mark </dev/null >/tmp/radio.log 2>&1 || true
unblocked || fail "the next start did not put the radio back on"
until_ 30 ping_air || fail "nothing passes the air after the next start"
ok "guard killed too: the next start put the radio back on"

# --- the daemon does it by itself: off after two silent seconds, on for the first packet, which is not lost
exec 3>&-
blocked() { [ "$(soft phy1)" = 1 ]; }
until_ 30 ping_gateway || fail "nothing passes the tunnel after all this"
dm doctor | grep 'rfkill: wlan1 is the interface of phy1' || fail "doctor does not name the radio"
dm mode energy || fail "mode energy"
until_ 60 blocked || fail "the daemon does not put the radio to sleep"
dm status --json | grep -q '"state":"asleep"' || fail "status does not say that it sleeps"
ping -c 1 -W 60 10.99.0.1 >/dev/null || fail "the packet that wakes is lost"
dm status --json | grep -q '"traffic":1' || fail "status does not say what woke it"
ok "the daemon slept when idle, and woke for a packet that was not lost"
until_ 60 blocked || fail "the daemon does not put the radio to sleep again"
kill -9 $daemon
until_ 20 unblocked || fail "the daemon's guard did not put the radio back on"
ok "the daemon killed while asleep: its guard put the radio back on"
echo "PASS"
