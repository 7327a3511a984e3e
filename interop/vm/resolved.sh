# In the virtual machine: the real systemd-resolved on a system bus, a device and its gateway, and behind the gateway a name server
# that knows a name which no other server knows. The daemon's DNS guard, which is root without any capability, tells resolved. Then a host of
# HIP, whose daemon answers for the names of its peers itself. Every step says "ok:"; the first that fails ends the story.
. /lib.sh
hip=/tmp/hip
logs="$device/log $gateway/log $hip/log /tmp/resolved.log /tmp/dnsmasq.log"
mkdir -p $device $gateway $hip
evidence() { dm status; ip addr; cat /etc/resolv.conf; links; }
# What resolved knows of links: family and address of each name server, by the index of its link.
links() {
  dbus-send --system --print-reply --dest=org.freedesktop.resolve1 /org/freedesktop/resolve1 org.freedesktop.DBus.Properties.Get \
    string:org.freedesktop.resolve1.Manager "string:${1:-DNS}"
}
asks() { nslookup wiki.office.test 2>&1 | grep -q '10\.99\.0\.7'; }

modprobe tun; modprobe veth
ip netns add gateway || fail "no namespaces"
ip link add wlan0 type veth peer name air netns gateway || fail "no link"
ip addr add 10.1.0.2/24 dev wlan0; ip link set wlan0 up
gw ip link set lo up; gw ip addr add 10.99.0.1/24 dev lo; gw ip addr add 10.1.0.1/24 dev air; gw ip link set air up
gw dnsmasq --no-daemon --user=root --group=root --no-resolv --no-hosts --listen-address=10.99.0.1 --bind-interfaces \
  --address=/wiki.office.test/10.99.0.7 >/tmp/dnsmasq.log 2>&1 &

system_bus
echo 'systemd-resolve:x:101:101::/:/bin/false' >>/etc/passwd
echo 'systemd-resolve:x:101:' >>/etc/group
mkdir -p /run/systemd/resolve && chown 101:101 /run/systemd/resolve
ln -sf /run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
systemd-resolved >/tmp/resolved.log 2>&1 &
until_ 20 links || fail "systemd-resolved does not come up"
until_ 10 test -s /run/systemd/resolve/stub-resolv.conf || fail "no resolv.conf of systemd-resolved"
! asks || fail "the name is known without the tunnel"
ok "systemd-resolved runs, and does not know the name"

{ settings $gateway; end gateway gateway.test "*.test"; printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' \
  'remote = ["dynamic"]' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]' 'dns = ["10.99.0.1"]'; } >$gateway/dormouse.toml
{ settings $device | sed '/^dns/d'; client; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]'; } >$device/dormouse.toml
run_daemon $gateway ip netns exec gateway
run_daemon $device
dm doctor | grep '^ok *name servers *by systemd-resolved' || fail "doctor: $(dm doctor | grep 'name servers')"
dm up peer || fail "no tunnel"
until_ 20 asks || fail "the name is not known through the tunnel"
index=$(cat /sys/class/net/dormouse0/ifindex)
links | grep -q "int32 $index" || fail "the name server is not the link's"
ok "up: systemd-resolved asks the name server behind the gateway, by the tunnel's link"

dm down peer || fail "down"
gone() { ! links | grep -q "int32 $index"; }
until_ 10 gone || fail "the name server stays after down"
! asks || fail "the name is still known"
ok "down: the link has no name server any more"

dm up peer || fail "no tunnel again"
until_ 20 asks || fail "the name is not known again"
kill -KILL $daemon; wait $daemon 2>/dev/null
until_ 10 gone || fail "the name server stays after the daemon was killed"
ok "killed: nothing stays behind"

# Nothing is reached by it here: the address is what the configuration says.
peer=2001:22:1111:1111:1111:1111:1111:1111
dormouse hip keygen $hip/hip.key || fail "no key"
host() { # host NAME: of the peer
  { settings $hip | sed '/^dns/d'; printf '%s\n' '[connection.home]' 'role = "hip"' 'block = "off"' '[connection.home.hip]' \
    "key = \"$hip/hip.key\"" '[[connection.home.hip.peers]]' "hit = \"$peer\"" "name = \"$1\""; } >$hip/dormouse.toml
}
knows() { nslookup "$1" 2>&1 | grep -q "$peer"; }
host server
run_daemon $hip
until_ 20 knows server.hip || fail "systemd-resolved does not find the peer: $(nslookup server.hip 2>&1)"
index=$(cat /sys/class/net/dormouse0/ifindex)
links Domains | grep -q 'string "hip"' || fail "the domain is not the link's"
! knows stranger.hip || fail "a name that is not there"
nslookup stranger.hip 2>&1 | grep -q NXDOMAIN || fail "no such name: $(nslookup stranger.hip 2>&1)"
ok "HIP: systemd-resolved finds a peer by its name, at once"

host other
dormouse --socket $hip/sock reload || fail "reload"
knows other.hip || fail "the new name is not known at once: $(nslookup other.hip 2>&1)"
! knows server.hip || fail "the old name is still known"
ok "HIP: a reload counts at once"

kill -KILL $daemon; wait $daemon 2>/dev/null
until_ 10 gone || fail "the name server stays after the daemon was killed"
! knows other.hip || fail "the name is still known"
ok "HIP: killed, nothing stays behind"
echo PASS
