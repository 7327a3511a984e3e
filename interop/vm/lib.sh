# What the stories in the virtual machine share; each begins with `. /lib.sh`. A story says in $logs which files show what went
# wrong, and may define `evidence` to print more. Every step says "ok:"; the first that fails ends the story.
set -u
device=/tmp/device gateway=/tmp/gateway logs=
# What ESP in the kernel needs of the machine (see esp-modules).
ESP_MODULES=$(cat /esp-modules 2>/dev/null)

ok() { echo "ok: $*"; }
evidence() { :; }
fail() {
  echo "FAIL: $*"
  for log in $logs; do echo "--- $log"; tail -n "${lines:-25}" "$log" 2>/dev/null; done
  evidence
  exit 1
}
seconds() { cut -d. -f1 /proc/uptime; }
# until_ SECONDS COMMAND...: tries until it succeeds
until_() {
  local end=$(($(seconds) + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ "$(seconds)" -lt $end ] || return 1
    sleep 0.2
  done
}
said() { grep -q -e "$1" "$2"; } # said WORDS FILE

# --- the radio's program (src/bin/radio.rs): orders go to its standard input by descriptor 3; each is answered by one line
answers() { grep -c -E '^(Off|On|State):' /tmp/radio.log; }
more_answers() { [ "$(answers)" -gt "$1" ]; }
order() { # sets $answer
  local before=$(answers); echo "$1" >&3
  until_ 60 more_answers "$before" || fail "no answer to $1"
  answer=$(grep -E '^(Off|On|State):' /tmp/radio.log | tail -n 1)
}
state_is() { order state; case $answer in *"$1"*) ;; *) return 1 ;; esac; }
# access_point: the radio phy0, in a namespace of its own with the address 10.1.0.1
access_point() {
  ip netns add gateway && iw phy phy0 set netns name gateway || fail "no access point"
  ip netns exec gateway ip addr add 10.1.0.1/24 dev wlan0
  printf '%s\n' interface=wlan0 driver=nl80211 ssid=burrow hw_mode=g channel=1 wpa=2 wpa_key_mgmt=WPA-PSK rsn_pairwise=CCMP \
    wpa_passphrase=sevensleepers >/tmp/hostapd.conf
  ip netns exec gateway hostapd -B /tmp/hostapd.conf >/tmp/hostapd.log 2>&1 || fail "hostapd"
}

# --- a system bus that lets everybody do everything
system_bus() {
  mkdir -p /run/dbus
  cat >/tmp/bus.conf <<'BUS'
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow send_destination="*"/><allow own="*"/><allow receive_sender="*"/></policy></busconfig>
BUS
  dbus-daemon --config-file=/tmp/bus.conf --nofork >/tmp/bus.log 2>&1 &
  until_ 10 test -S /run/dbus/system_bus_socket || fail "no bus"
}

# --- our daemons
dm() { dormouse --socket $device/sock "$@"; }
end() { # end ROLE OWN PEER: one connection under a shared secret
  printf '%s\n' "[connection.peer]" "role = \"$1\"" "[connection.peer.local]" "id = \"$2\"" 'secret = "a shared secret of the test"' \
    "[connection.peer.remote]" "id = \"$3\"" 'secret = "a shared secret of the test"'
}
gateway_address() { sed 's/^role = "client"/&\ngateway = "10.1.0.1"/'; }
certified() { # certified ROLE OWN PEER: one connection by the certificates in /pki
  printf '%s\n' "[connection.peer]" "role = \"$1\"" "[connection.peer.local]" "id = \"$2\"" "certificate = \"/pki/$2.pem\"" \
    "key = \"/pki/$2.key\"" "[connection.peer.remote]" "id = \"$3\"" 'ca = ["/pki/ca.pem"]' | gateway_address
}
client() { end client device.test gateway.test | gateway_address; }
settings() { printf '%s\n' "[daemon]" "state_dir = \"$1/state\"" "socket = \"$1/sock\"" 'user = "root"' 'dns = "off"'; }
# run_daemon DIRECTORY [COMMAND...]: with DIRECTORY/dormouse.toml, by COMMAND (a program that enters a namespace); sets $daemon
run_daemon() {
  local place=$1; shift
  chmod 600 "$place/dormouse.toml"
  "$@" dormoused --config "$place/dormouse.toml" >>"$place/log" 2>&1 &
  daemon=$!
  until_ 30 test -S "$place/sock" || fail "the daemon in $place does not come up"
}

# --- a device and a gateway joined by a cable
dev() { ip netns exec device "$@"; }
gw() { ip netns exec gateway "$@"; }
cable() {
  ip netns add device && ip netns add gateway || fail "no namespaces"
  ip link add cable0 netns device type veth peer name cable1 netns gateway || fail "no cable"
  dev ip link set lo up; gw ip link set lo up
  dev ip addr add 10.1.0.2/24 dev cable0; gw ip addr add 10.1.0.1/24 dev cable1
  gw ip addr add 10.99.0.1/32 dev lo
  dev ip link set cable0 up; gw ip link set cable1 up
  # The kernel asks for a route before it asks for a policy.
  gw ip route add default via 10.1.0.2; dev ip route add default via 10.1.0.1
}
# behind_nat: the device has 192.168.7.2, behind a router that has 10.1.0.6 on the gateway's network. Nothing passes but IKE and ESP in UDP.
behind_nat() {
  for module in $(cat /nat-modules); do modprobe "$module" || fail "no NAT: $module"; done
  ip netns add device && ip netns add router && ip netns add gateway || fail "no namespaces"
  ip link add cable0 netns device type veth peer name inside netns router || fail "no cable"
  ip link add outside netns router type veth peer name cable1 netns gateway || fail "no cable"
  for name in device router gateway; do ip netns exec $name ip link set lo up; done
  dev ip addr add 192.168.7.2/24 dev cable0; dev ip link set cable0 up
  ip netns exec router ip addr add 192.168.7.1/24 dev inside; ip netns exec router ip link set inside up
  ip netns exec router ip addr add 10.1.0.6/24 dev outside; ip netns exec router ip link set outside up
  gw ip addr add 10.1.0.1/24 dev cable1; gw ip link set cable1 up
  gw ip addr add 10.99.0.1/32 dev lo
  dev ip route add default via 192.168.7.1; gw ip route add default via 10.1.0.6
  ip netns exec router sysctl -q -w net.ipv4.ip_forward=1
  ip netns exec router nft 'table ip nat {
    chain post { type nat hook postrouting priority 100; oifname "outside" masquerade; }
    chain forward { type filter hook forward priority 0; policy drop; udp dport { 500, 4500 } accept; ct state established accept; }
  }' || fail "no NAT"
}
esp_modules() {
  # The last of the list need the others when they test themselves.
  for module in $ESP_MODULES; do modprobe "$module" || echo "no module $module"; done
}
# flows WHAT PING-ARGUMENT...: none of five is lost once one has passed
flows() {
  local what=$1; shift
  until_ 30 dev ping -c 1 -W 2 "$@" || fail "nothing passes: $what"
  dev ping -c 5 -i 0.2 -W 5 "$@" >/tmp/ping.log && grep -q ' 0% packet loss' /tmp/ping.log || fail "packets are lost: $what: $(tail -n 2 /tmp/ping.log)"
  ok "$what"
}
# move FROM TO: the device has another address on its network; there is always a way
move() {
  dev sysctl -q -w net.ipv4.conf.cable0.promote_secondaries=1
  dev ip addr add "$2/24" dev cable0
  dev ip addr del "$1/24" dev cable0
  dev ip route replace default via 10.1.0.1
}

# --- ESP that our daemons lend to the kernel (daemon.data_path)
data_path() { printf '%s\n' 'data_path = "kernel"' 'log = "info,dormoused=debug,dormouse_node=debug"'; }
# lending_modules: what it needs besides; a kernel that cannot lend is no reason for a story to fail later
lending_modules() { esp_modules; modprobe xfrm_interface || fail "no XFRM interfaces"; }
# Of all states, those of our interface.
states() { ip netns exec "$1" ip xfrm state | grep -c 'if_id 0x646d'; }
leads() { ip netns exec "$1" ip route show table 25709 | grep -q dormouse0-esp; }
lent() { [ "$(states "$1")" = 2 ] && leads "$1"; }
returned() { [ "$(states "$1")" = 0 ] && ! leads "$1"; }
# Loans that NAME's daemon has made so far: of a load that ends by itself, the moment in which something is lent may pass between two looks.
loans() { grep -c 'the kernel carries it' /tmp/$1/log; }
lends_more() { [ "$(loans "$1")" -gt "$2" ]; } # lends_more NAME LOANS-BEFORE
# begin_load ADDRESS COUNT [AT-ONCE]: so many round trips in the background, 64 at once: a slow machine carries more in trains
begin_load() { dev ping -q -f -l "${3:-64}" -c "$2" -s 200 -W 5 "$1" >/tmp/load.log 2>&1 & loader=$!; }
# end_load WORDS: none was lost
end_load() {
  wait $loader
  grep -q ' 0% packet loss' /tmp/load.log || fail "packets are lost: $1: $(tail -n 3 /tmp/load.log)"
}
stop_load() { killall -q -INT ping; wait $loader; }
# end_change WORDS: few were lost, of those until some seconds from now
end_change() {
  local loss
  sleep 6
  stop_load
  loss=$(sed -n 's/.* \([0-9.]*\)% packet loss.*/\1/p' /tmp/load.log)
  echo "   $1: $loss % lost"
  [ "${loss%.*}" -lt 20 ] || fail "packets are lost: $1: $(tail -n 3 /tmp/load.log)"
}
# lends_at WHOM REKEY...: our device at another program's gateway, through load, a rekeying by the command REKEY, a sleep and a move
lends_at() {
  local whom=$1
  shift
  dm up peer || fail "no tunnel"
  flows "at $whom: data flows" 10.99.0.1
  begin_load 10.99.0.1 100000
  until_ 60 lent device || fail "nothing is lent under load"
  end_change "lent"
  until_ 60 returned device || fail "not called back"
  flows "at $whom: lent under load and called back" 10.99.0.1
  begin_load 10.99.0.1 100000
  until_ 60 lent device || fail "not lent before the rekeying"
  "$@" || fail "$whom does not rekey"
  end_change "$whom rekeys"
  flows "at $whom: it rekeyed the CHILD SA under load" 10.99.0.1
  lends_through_a_sleep "at $whom"
  begin_load 10.99.0.1 100000
  until_ 60 lent device || fail "not lent before the move"
  move 10.1.0.2 10.1.0.3
  end_change "moving"
  flows "at $whom: moved under load" 10.99.0.1
}
# lends_through_a_sleep WHERE: asleep in the midst of load: the sleeper's packets wait, none is repeated
lends_through_a_sleep() {
  begin_load 10.99.0.1 100000
  until_ 60 lent device || fail "not lent before the sleep"
  dm suspend || fail "suspend"
  until_ 60 returned device || fail "not called back for the sleep"
  dm resume || fail "resume"
  stop_load
  flows "$1: asleep and awake in the midst of load" 10.99.0.1
}
evidence_of_lending() {
  for name in device gateway; do
    echo "--- $name"
    ip netns exec $name ip -s xfrm state; ip netns exec $name ip xfrm policy; ip netns exec $name ip route show table 25709
    ip netns exec $name grep -v '[^0-9]0$' /proc/net/xfrm_stat
  done
}
