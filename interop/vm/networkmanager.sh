# In the virtual machine: the real NetworkManager, with wpa_supplicant, on a simulated 802.11 radio (mac80211_hwsim) behind an access
# point in a namespace of its own. Our driver makes it let go of the device and take it back; the profile does not connect by
# itself, so that coming back is our doing. Every step says "ok:"; the first that fails ends the test.
. /lib.sh
logs="/tmp/radio.log /tmp/nm.log /tmp/hostapd.log /tmp/wpa.log"
evidence() { iw dev wlan1 link; ip addr show dev wlan1; }
ping_air() { ping -c 1 -W 1 10.1.0.1; }

modprobe mac80211_hwsim radios=3 2>/dev/null; modprobe ccm; modprobe ctr
access_point
ip link set wlan2 up

mkdir -p /etc/NetworkManager/system-connections /var/lib/NetworkManager
system_bus
wpa_supplicant -u -B -f /tmp/wpa.log || fail "wpa_supplicant"
cat >/etc/NetworkManager/NetworkManager.conf <<'NM'
[main]
plugins=keyfile
dhcp=internal
auth-polkit=false
dns=none
[device]
wifi.scan-rand-mac-address=no
[keyfile]
unmanaged-devices=interface-name:wlan2
NM
cat >/etc/NetworkManager/system-connections/burrow.nmconnection <<'PROFILE'
[connection]
id=burrow
uuid=6d0c3f5e-8a51-4c52-9e77-0f5b1c7f2a10
type=wifi
autoconnect=AUTO
[wifi]
ssid=burrow
[wifi-security]
key-mgmt=wpa-psk
psk=sevensleepers
[ipv4]
method=manual
address1=10.1.0.2/24
[ipv6]
method=disabled
PROFILE
sed -i 's/AUTO/true/' /etc/NetworkManager/system-connections/burrow.nmconnection
chmod 600 /etc/NetworkManager/system-connections/burrow.nmconnection
# Without udev in this machine NetworkManager would wait for it, unless /sys is not to be written to, as in a container.
mount -o remount,ro /sys
start_nm() { NetworkManager --debug >>/tmp/nm.log 2>&1 & nm=$!; }
start_nm
until_ 60 ping_air || fail "NetworkManager does not connect"
ok "NetworkManager is connected"

# From now on the profile waits to be asked: coming back is our doing.
sed -i 's/^autoconnect=.*/autoconnect=false/' /etc/NetworkManager/system-connections/burrow.nmconnection
dbus-send --system --print-reply --dest=org.freedesktop.NetworkManager /org/freedesktop/NetworkManager/Settings \
  org.freedesktop.NetworkManager.Settings.ReloadConnections >/tmp/reload.log 2>&1 || fail "the profile is not read again"

mkfifo /tmp/orders
radio --interface wlan1 --mark /tmp/mark </tmp/orders >/tmp/radio.log 2>&1 &
radio=$!
exec 3>/tmp/orders
until_ 10 grep -q '^guard:' /tmp/radio.log || fail "no radio"
grep '^radio:' /tmp/radio.log
grep -q '^radio: networkmanager: it runs (version .*) and manages wlan1' /tmp/radio.log || fail "another way was chosen"
until_ 10 state_is "On, attached to burrow" || fail "not attached: $answer"

order off
case $answer in "Off: Off, not attached") ;; *) fail "off: $answer" ;; esac
ip link show dev wlan1 | grep -q 'state DOWN' || fail "the interface is up"
# Nothing else of this radio is up either, such as a device for Wi-Fi Direct: the hardware has no power.
iw phy phy1 info >/dev/null
ip link show dev wlan2 | grep -q ',UP' || fail "the bystander's interface is down"
! ping_air >/dev/null 2>&1 || fail "packets pass a radio that is off"
grep -c 'managed -> unmanaged\|-> unmanaged' /tmp/nm.log
ok "NetworkManager has let go of the device, and its link is down"

order on
case $answer in "On: On"*) ;; *) fail "on: $answer" ;; esac
until_ 30 state_is "On, attached to burrow" || fail "not attached again: $answer"
until_ 10 ping_air || fail "nothing passes the air"
ok "back on the same network, by a profile that does not connect by itself"

order off
kill $nm; wait $nm 2>/dev/null
start_nm
order state; echo "after a restart of NetworkManager: $answer"
until_ 30 dbus-send --system --print-reply --dest=org.freedesktop.NetworkManager /org/freedesktop/NetworkManager \
  org.freedesktop.DBus.Peer.Ping || fail "NetworkManager does not come back"
sleep 1
order on
case $answer in "On: On"*) ;; *) fail "on after a restart: $answer" ;; esac
until_ 30 state_is "On, attached to burrow" || fail "not attached after the restart: $answer"
ok "back after a restart of NetworkManager while the radio was off"

order off
kill -9 $radio
until_ 30 ping_air || fail "the guard did not give the device back"
ok "killed while asleep: the guard gave the device back"
echo "PASS"
