# In the virtual machine: the real NetworkManager on a system bus, with the rights that Debian's unit leaves it, our plug-in, and a gateway in a
# namespace of its own, behind two networks. Every step says "ok:"; the first that fails ends the story.
. /lib.sh
logs="/tmp/nm.log $gateway/log"
mkdir -p $gateway
lines=60
evidence() { echo ---; cat /tmp/up.log;  ip addr; ip route; ip -6 route; nmcli -t connection; cat /etc/resolv.conf; ls -lR /run/dormouse-nm /var/lib/dormouse-nm; }
gateway_dm() { dormouse --socket $gateway/sock "$@"; }

modprobe tun; modprobe veth; modprobe virtio_pci; modprobe virtio_net
printf '%s\n' 'dormouse:x:990:990::/:/bin/false' 'messagebus:x:101:101::/:/bin/false' >>/etc/passwd
printf '%s\n' 'dormouse:x:990:' 'messagebus:x:101:' >>/etc/group
mkdir -p /var/lib/dormouse-nm && chown 990:990 /var/lib/dormouse-nm && chmod 700 /var/lib/dormouse-nm
mkdir -p /usr/libexec && ln -s /usr/bin/dormouse-nm /usr/libexec/dormouse-nm

# --- the gateway, behind two networks
ip netns add gateway || fail "no namespaces"
ip link add lan1 type veth peer name air1 netns gateway || fail "no link"
# NetworkManager takes down for a sleep what is hardware.
ip link set eth0 name lan2 && ip link set eth1 name air2 netns gateway || fail "no network cards"
for n in 1 2; do
  gw ip addr add 10.$n.0.1/24 dev air$n; gw ip link set air$n up
  # What is behind the gateway answers by the tunnel alone.
  gw ip rule add from 10.99.0.0/24 to 10.$n.0.0/24 prio 1 blackhole
done
gw ip link set lo up; gw ip addr add 10.99.0.1/24 dev lo; gw ip addr add 10.3.0.1/32 dev lo
gw dormouse gateway init --passwords --name gateway.test --reach 0.0.0.0/0 --pool 10.55.0.0/24 --dns 10.99.0.1 --yes \
  --config $gateway/dormouse.toml >/tmp/init.log 2>&1 || fail "gateway init: $(cat /tmp/init.log)"
sed -i "/^forward/d; /renewals.$/,\$d; 1i [daemon]\nstate_dir = \"$gateway/state\"\nsocket = \"$gateway/sock\"\nuser = \"root\"\ndns = \"off\"\n" $gateway/dormouse.toml
run_daemon $gateway ip netns exec gateway
others=$(pidof dormoused | wc -w)

# --- NetworkManager
mkdir -p /etc/NetworkManager/system-connections /var/lib/NetworkManager /etc/NetworkManager/certs
# The bus as Debian has it: it lets none but those speak with the plug-in whom our policy names.
mkdir -p /run/dbus
dbus-daemon --system --nofork >/tmp/bus.log 2>&1 &
until_ 10 test -S /run/dbus/system_bus_socket || fail "no bus: $(cat /tmp/bus.log)"
cat >/etc/NetworkManager/NetworkManager.conf <<'NM'
[main]
plugins=keyfile
auth-polkit=false
dns=default
rc-manager=file
no-auto-default=*
NM
for n in 1 2; do
  printf '%s\n' '[connection]' id=lan$n uuid=6d0c3f5e-8a51-4c52-9e77-00000000000$n type=ethernet interface-name=lan$n autoconnect=false \
    '[ipv4]' method=manual address1=10.$n.0.2/24,10.$n.0.1 '[ipv6]' method=disabled \
    >/etc/NetworkManager/system-connections/lan$n.nmconnection
done
chmod 600 /etc/NetworkManager/system-connections/*
echo '10.3.0.1 gateway.test' >>/etc/hosts
mount -o remount,ro /sys
# As in Debian's NetworkManager.service.
rights=-all,+net_admin,+dac_override,+net_raw,+net_bind_service,+setgid,+setuid,+sys_module,+audit_write,+kill,+sys_chroot
setpriv --bounding-set "$rights" NetworkManager --debug --log-level=INFO >>/tmp/nm.log 2>&1 &
until_ 60 nmcli general || fail "NetworkManager does not come up"
nmcli connection up lan1 >/tmp/lan1.log 2>&1 || fail "lan1: $(cat /tmp/lan1.log)"
until_ 10 ping -c 1 -W 1 10.3.0.1 || fail "the gateway cannot be reached"
ok "NetworkManager is connected to the first network"

# --- what the plug-in's daemons say of themselves
of() { nmcli -g connection.uuid connection show "$1"; } # of CONNECTION: its UUID
vpn() { local of=$(of "$1"); shift; dormouse --socket /run/dormouse-nm/$of/sock "$@"; }
tun() { of "$1" | sed 's/^\(......\).*/dormouse-\1/'; }
is_up() { nmcli -g GENERAL.STATE connection show "$1" | grep -q activated; }
is_down() { ! is_up "$1"; }
inside() { ping -c 1 -W 1 ${1:+-I $(tun $1)} 10.99.0.1; }
names() { grep -q '^nameserver 10.99.0.1' /etc/resolv.conf; }
ticket() { [ -s /var/lib/dormouse-nm/$(of "$1")/ticket-vpn ]; }
back_by() { vpn "$1" status | grep -q "$2"; }
no_daemon() { ! pidof dormouse-nm >/dev/null && [ "$(pidof dormoused | wc -w)" = "$others" ]; }

# --- a user with a password, as nmcli alone makes the connection
user() { gw dormouse --socket $gateway/sock user add "$@" --config $gateway/dormouse.toml >/tmp/user.log 2>&1 || fail "user add: $(cat /tmp/user.log)"; }
user joe --password --as networkmanager --out /tmp/joe
password=$(sed -n 's/.* password  \([^ ]*\) .*/\1/p' /tmp/user.log)
cp /tmp/joe/joe-ca.pem /etc/NetworkManager/certs/
nmcli connection add type vpn con-name office ifname '*' vpn-type dormouse vpn.data "address = gateway.test, remote-ts = 10.99.0.0/24, method = eap,
  user = joe.gateway.test, certificate = /etc/NetworkManager/certs/joe-ca.pem, password-flags = 2" >/tmp/add.log 2>&1 || fail "add: $(cat /tmp/add.log)"
! inside >/dev/null || fail "the network behind the gateway can be reached without it"
echo "$password" | nmcli --ask connection up office >/tmp/up.log 2>&1 || fail "up: $(cat /tmp/up.log)"
grep -q 'needs the password of joe.gateway.test' /tmp/up.log || fail "not asked: $(cat /tmp/up.log)"
until_ 10 inside || fail "nothing passes the tunnel"
ok "up: nmcli asked for the password, and the network behind the gateway is there"
ip route | grep -q "^10.99.0.0/24 dev $(tun office) proto static" || fail "the route is not NetworkManager's"
ip rule | grep -q 25709 && fail "the daemon has made policy rules"
names || fail "no name server"
user=$(sed -n 's/^Uid:.\([0-9]*\).*/\1/p' /proc/$(pidof dormoused | tr ' ' '\n' | sort -n | tail -n 1)/status)
[ "$user" = 990 ] || fail "the daemon is user $user"
find /run/dormouse-nm -type f | grep . && fail "a secret lies about"
ok "route and name server are NetworkManager's, and the daemon is a user without privileges"

nmcli connection down office >/tmp/down.log 2>&1 || fail "down: $(cat /tmp/down.log)"
until_ 10 no_daemon || fail "plug-in or daemon stays"
! names && ! inside >/dev/null && ! ip link show | grep -q dormouse- || fail "something stays after down"
! ticket office || fail "a ticket stays"
gateway_dm status | grep -q joe && fail "the gateway still has the session"
ok "down: nothing stays, neither here nor at the gateway"

printf '%s\n' wrong-one "$password" | nmcli --ask connection up office >/tmp/up.log 2>&1 || fail "up after a wrong password: $(cat /tmp/up.log)"
grep -q 'refuses the password' /tmp/up.log || fail "not asked again: $(cat /tmp/up.log)"
until_ 10 inside || fail "nothing passes the tunnel"
ok "a wrong password is asked for again"

# --- another at the same time, by a file of the gateway's
user ann --out /tmp/ann.dormouse
dormouse join --networkmanager --name ann /tmp/ann.dormouse >/tmp/join.log 2>&1 || fail "join: $(cat /tmp/join.log)"
nmcli connection up ann >/tmp/up.log 2>&1 || fail "ann: $(cat /tmp/up.log)"
is_up office && until_ 10 inside office && until_ 10 inside ann || fail "not both at once"
ok "two connections at once, one of them joined by a file"
ip route | grep -q "^default dev $(tun ann) proto static" || fail "no default route into the tunnel: $(ip route)"
name=$(dbus-send --system --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames |
  sed -n 's/.*"\(org.freedesktop.NetworkManager.dormouse[^"]*\)".*/\1/p' | head -n 1)
[ -n "$name" ] || fail "the plug-in has no name on the bus"
setpriv --reuid 990 --regid 990 --clear-groups dbus-send --system --print-reply --dest="$name" /org/freedesktop/NetworkManager/VPN/Plugin \
  org.freedesktop.NetworkManager.VPN.Plugin.Disconnect >/tmp/refused.log 2>&1
grep -q AccessDenied /tmp/refused.log && is_up office && is_up ann || fail "a user gives orders to the plug-in: $(cat /tmp/refused.log)"
ok "a user's program may not give orders to the plug-in"
nmcli connection down office >/dev/null 2>&1

# --- nmcli reads a file of the gateway's by itself
nmcli connection down ann >/dev/null 2>&1
echo 'not a file of ours' >/tmp/other.dormouse
nmcli connection import type dormouse file /tmp/other.dormouse >/tmp/import.log 2>&1 && fail "a file without sense is imported"
grep -q 'other.dormouse' /tmp/import.log || fail "import does not say why: $(cat /tmp/import.log)"
user bob --out /tmp/bob.dormouse
import() { nmcli connection import type dormouse file /tmp/bob.dormouse >/tmp/import.log 2>&1; }
import || fail "import: $(cat /tmp/import.log)"
nmcli connection delete bob >/dev/null 2>&1 && import || fail "import again: $(cat /tmp/import.log)"
nmcli connection up bob >/tmp/up.log 2>&1 && until_ 10 inside bob || fail "up after an import: $(cat /tmp/up.log)"
nmcli connection down bob >/dev/null 2>&1
nmcli connection up ann >/tmp/up.log 2>&1 || fail "ann once more: $(cat /tmp/up.log)"
ok "nmcli connection import, up and down"

# --- another network: the session moves, though all that is not the daemon's own goes into the tunnel
nmcli connection up lan2 >/tmp/up.log 2>&1 && nmcli connection down lan1 >>/tmp/up.log 2>&1 || fail "lan2: $(cat /tmp/up.log)"
# Its cable, too: a route that NetworkManager leaves behind is of no use.
gw ip link set air1 down
until_ 30 inside || fail "nothing passes after the move"
is_up ann && vpn ann status | grep -q '10\.2\.0\.2' || fail "not moved: $(vpn ann status)"
names || fail "no name server after the move"
ok "on another network: NetworkManager leaves the connection up, and the session has moved"

# --- NetworkManager and the machine sleep
nmcli connection modify lan2 connection.autoconnect yes
nmcli connection modify office +vpn.data password-flags=0 vpn.secrets "password=$password" || fail "the password is not stored"
# After a move, NetworkManager takes the persistent connection for the way to everything, and it has no device: so that is named.
nmcli connection up office ifname lan2 >/tmp/up.log 2>&1 || fail "with a stored password: $(cat /tmp/up.log)"
sleeps() {
  dbus-send --system --print-reply --dest=org.freedesktop.NetworkManager /org/freedesktop/NetworkManager org.freedesktop.NetworkManager.Sleep \
    "boolean:$1" >/tmp/sleep.log 2>&1 || fail "Sleep: $(cat /tmp/sleep.log)"
}
sleeps true
until_ 20 is_down office || fail "NetworkManager leaves the ordinary connection up"
asleep() { ! ip addr show lan2 | grep -q '10\.2\.0\.2'; }
until_ 20 asleep || fail "NetworkManager does not sleep"
before=$(seconds)
mount -o remount,rw /sys
echo 0 >/sys/class/rtc/rtc0/wakealarm; echo +10 >/sys/class/rtc/rtc0/wakealarm
echo mem >/sys/power/state || fail "the machine cannot be suspended"
mount -o remount,ro /sys
[ $(($(seconds) - before)) -ge 8 ] || fail "the machine has not slept"
ticket office || fail "no ticket was kept"
is_up ann || fail "the persistent connection went down"
sleeps false
until_ 40 inside ann || fail "the persistent connection is not back"
is_up ann || fail "the persistent connection is up no more"
ok "awake after $(($(seconds) - before)) s: the persistent connection is back by itself"
resumed() { grep 'a client came .*peer=joe.gateway.test' $gateway/log | tail -n 1 | grep -q 'resumed=true'; }
! resumed || fail "resumed before the sleep"
nmcli connection up office ifname lan2 >/tmp/up.log 2>&1 || fail "after the sleep: $(cat /tmp/up.log)"
until_ 10 inside office && resumed || fail "not back by ticket"
ok "the other one, which NetworkManager had taken down, is back by its ticket"

# --- what is killed
kill -KILL "$(cat /var/lib/dormouse-nm/$(of ann)/lock)"
until_ 20 is_down ann || fail "NetworkManager does not learn that the daemon is gone"
! ip link show | grep -q "$(tun ann)" || fail "its interface stays"
is_up office || fail "the other connection went down, too"
kill -KILL $(pidof dormouse-nm)
until_ 20 is_down office || fail "NetworkManager does not notice that the plug-in is gone"
nmcli connection up office >/tmp/up.log 2>&1 || fail "after the plug-in was killed: $(cat /tmp/up.log)"
until_ 10 inside office || fail "nothing passes"
ok "a daemon or a plug-in that is killed takes its own connection down, and it comes up again"
killall -KILL NetworkManager
until_ 20 no_daemon || fail "NetworkManager is gone, and plug-in or daemon stays"
! ip link show | grep -q dormouse- || fail "an interface stays"
ok "NetworkManager is killed: plug-in and daemon end"
echo PASS
