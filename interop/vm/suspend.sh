# In the virtual machine: a device and its gateway, a namespace each, and then the machine itself is suspended to memory. Nobody tells
# the daemons (there is no logind here): what fell due meanwhile is due at once when the machine is awake again, because timers count
# suspended time. A clock that stands still in suspend, as Linux's CLOCK_MONOTONIC does, would make this test fail twice.
. /lib.sh
logs="$device/log $gateway/log"
mkdir -p $device $gateway
evidence() { dm status; dmesg | tail -n 5; }
ping_gateway() { ping -c 1 -W 1 10.99.0.1; }
# The kernel's log is stamped by a clock that stands still in suspend.
monotonic() { echo "now" >/dev/kmsg; dmesg | sed -n 's/^\[ *\([0-9]*\)\..*now$/\1/p' | tail -n 1; }

modprobe tun; modprobe veth
ip netns add gateway || fail "no namespaces"
ip link add wlan0 type veth peer name air netns gateway || fail "no link"
ip addr add 10.1.0.2/24 dev wlan0; ip link set wlan0 up
gw ip link set lo up; gw ip addr add 10.99.0.1/24 dev lo; gw ip addr add 10.1.0.1/24 dev air; gw ip link set air up

# The gateway keeps a session for 20 s, the device wakes every 25 s, and the machine sleeps for 40 s.
{ settings $gateway; echo 'sleeper_longest = 20'; end gateway gateway.test "*.test"; printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' \
  'remote = ["dynamic"]' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]'; } >$gateway/dormouse.toml
{ settings $device; client; printf '%s\n' '[connection.peer.child]' \
  'remote = ["10.99.0.0/24"]' '[sleep]' 'radio = "link"' 'interface = "wlan0"' 'policy = 0.5' 'wake_every = 25'; } >$device/dormouse.toml
run_daemon $gateway ip netns exec gateway
run_daemon $device
dm up peer || fail "no tunnel"
until_ 10 ping_gateway || fail "nothing passes the tunnel"
dm mode energy || fail "mode"
asleep() { dm status | grep -q '^radio *asleep'; }
until_ 15 asleep || fail "the radio does not sleep"
ok "the tunnel is up, and the radio sleeps"

# --- the machine sleeps
[ -e /sys/class/rtc/rtc0/wakealarm ] || fail "no clock that could wake the machine"
before=$(seconds) stood=$(monotonic)
echo 0 >/sys/class/rtc/rtc0/wakealarm; echo +40 >/sys/class/rtc/rtc0/wakealarm
echo mem >/sys/power/state || fail "the machine cannot be suspended"
slept=$(($(seconds) - before)) stood=$(($(monotonic) - stood))
[ $slept -ge 35 ] && [ $stood -lt 20 ] || fail "no suspend: $slept s by the clock, $stood s by the one that stands still"
ok "the machine slept for $slept s, of which a clock that stands still saw $stood s"

# --- and what was due meanwhile is due now
woke() { dm status | grep -q 'last wakes.*schedule'; }
until_ 10 woke || fail "the scheduled wake is not due"
back() { dm status | grep 'schedule, after' | grep -q 'back by'; }
until_ 20 back || fail "the session is not back"
dm status | grep 'schedule, after' | grep -q 'back by ticket' || fail "the gateway's hold did not end while the machine slept"
until_ 10 ping_gateway || fail "nothing passes the tunnel after the sleep"
ok "the scheduled wake came at once, by ticket: the 20 s for which the gateway keeps a session had passed"
echo PASS
