# In the virtual machine: L2TP/IPsec with a pre-shared key, as in paper 001. Our daemons protect in transport mode what xl2tpd and pppd say to
# each other, who give the device its inner address; beside it, IKEv2 gives one by itself in tunnel mode. What each adds to a packet is
# counted on the cable. The paper ran L2TP over IPsec in tunnel mode and with 3DES, which we do not negotiate: its 20 bytes more of a second
# IP header are not here.
. /lib.sh
logs="/tmp/gateway.l2tp /tmp/device.l2tp /tmp/gateway.ppp.log /tmp/device.ppp.log $device/log $gateway/log"
evidence() { dm status; dev ip addr; dev ip -s link; }

# /dev/ppp is there once its module is.
for module in veth tun ppp_generic pppox l2tp_ppp ppp_async ppp_synctty; do modprobe $module || fail "no module $module"; done
[ -c /dev/ppp ] || fail "no /dev/ppp"
mkdir -p $device/state $gateway/state /usr/sbin /etc/ppp /run/xl2tpd /dev/pts
# xl2tpd starts it there.
ln -s /usr/bin/pppd /usr/sbin/pppd
mount -t devpts devpts /dev/pts
touch /etc/ppp/options /etc/ppp/chap-secrets /etc/ppp/pap-secrets
# Nothing else shall be sent on the cable while bytes are counted there.
sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
cable
for end in device gateway; do ip netns exec $end sysctl -q -w net.ipv6.conf.all.disable_ipv6=1; done

# --- bytes on the cable for a packet with so many bytes of payload to an address
sizes="256 512 1024"
sent() { dev cat /sys/class/net/cable0/statistics/tx_bytes; }
count() { # count NAME ADDRESS: sets NAME_SIZE for each size, to the median of nine packets: IKE and ARP speak at times too
  for size in $sizes; do
    : >/tmp/counted
    for packet in 1 2 3 4 5 6 7 8 9; do
      before=$(sent)
      dev ping -q -c 1 -W 10 -s $size "$2" >/tmp/ping.log || fail "packets are lost: $(tail -n 2 /tmp/ping.log)"
      echo $(($(sent) - before)) >>/tmp/counted
    done
    eval "$1_$size=$(sort -n /tmp/counted | sed -n 5p)"
  done
}
until_ 10 dev ping -c 1 -W 1 10.1.0.1 || fail "the cable does not carry"
count plain 10.1.0.1

# --- L2TP in transport mode
# There is no packet filter in this machine to hold back what would go around the tunnel.
open_client() { client | sed 's/^role = "client"/&\nblock = "off"/'; }
transport() { printf '%s\n' '[connection.peer.child]' 'mode = "transport"'; }
by_nat_only() { printf '%s\n' '[connection.peer.ike]' 'esp_in_udp = "nat"'; }
{ settings $gateway; end gateway gateway.test '*.test'; by_nat_only; transport; } >$gateway/dormouse.toml
{ settings $device; open_client; by_nat_only; transport; } >$device/dormouse.toml
run_daemon $gateway ip netns exec gateway; at_gateway=$daemon
run_daemon $device ip netns exec device; at_device=$daemon
dm up peer >/tmp/up.log 2>&1 || fail "no session: $(cat /tmp/up.log)"
dm status --json | grep -q '"mode":"transport"' || fail "not in transport mode"
ok "the two hosts have a session in transport mode"

# Neither end proves who it is by PPP: IKE has done that.
for end in gateway device; do
  printf '%s\n' noauth 'mtu 1300' 'mru 1300' nodeflate nobsdcomp noccp noipv6 debug "logfile /tmp/$end.ppp.log" >/tmp/$end.ppp
done
printf '%s\n' '[global]' 'listen-addr = 10.1.0.1' '[lns default]' 'ip range = 10.77.0.10-10.77.0.20' 'local ip = 10.77.0.1' \
  'require authentication = no' 'refuse chap = yes' 'refuse pap = yes' 'length bit = yes' 'pppoptfile = /tmp/gateway.ppp' >/tmp/gateway.conf
printf '%s\n' '[global]' 'listen-addr = 10.1.0.2' '[lac gateway]' 'lns = 10.1.0.1' 'require authentication = no' 'length bit = yes' \
  'pppoptfile = /tmp/device.ppp' >/tmp/device.conf
# esp_packets FILE: how many packets of IP's protocol 50 a recording of Ethernet holds. Behind the file's 24 bytes a record has 16, the third
# four of which are its length, and a frame: 14 bytes, then IP's header, whose tenth byte is the protocol.
esp_packets() {
  od -An -v -t u1 "$1" | awk '
    { for (i = 1; i <= NF; i++) byte[n++] = $i }
    END {
      for (at = 24; at + 16 <= n; at += 16 + bytes) {
        bytes = byte[at + 8] + 256 * byte[at + 9] + 65536 * byte[at + 10]
        if (byte[at + 28] == 8 && byte[at + 29] == 0 && byte[at + 39] == 50) found++
      }
      print found + 0
    }'
}
l2tp() { # l2tp NAMESPACE
  ip netns exec "$1" xl2tpd -D -c "/tmp/$1.conf" -s /dev/null -p "/tmp/$1.pid" -C "/tmp/$1.control" >"/tmp/$1.l2tp" 2>&1 &
  until_ 10 test -p "/tmp/$1.control" || fail "xl2tpd does not come up"
}
l2tp gateway; l2tp device
# Whatever leaves the device from here on.
ip netns exec device dormouse trace record cable0 /tmp/seen.pcap --snap 1500 >/tmp/record.log 2>&1 & recorder=$!
until_ 10 test -s /tmp/seen.pcap || fail "no recording: $(cat /tmp/record.log)"
echo 'c gateway' >/tmp/device.control
# Until PPP has its address, this goes another way.
until_ 60 dev ping -c 1 -W 1 10.77.0.1 || fail "nothing passes through L2TP"
dev ip addr show ppp0 | grep -q 'inet 10.77.0.1[0-9] peer 10.77.0.1/32' || fail "no inner address by PPP"
for end in device gateway; do said 'Using l2tp kernel support' /tmp/$end.l2tp || fail "xl2tpd does without the kernel's L2TP at the $end"; done
ok "xl2tpd and pppd give the device an address above it, packets go by the kernel"
dev ping -q -c 5 -i 0.1 -p 646f726d6f757365 10.77.0.1 >/tmp/ping.log || fail "packets are lost" # "dormouse", over and over
kill -INT $recorder; wait $recorder
esp=$(esp_packets /tmp/seen.pcap)
[ "$esp" -ge 5 ] || fail "$esp packets of ESP were recorded, for five that were sent"
! grep -q dormousedormouse /tmp/seen.pcap || fail "L2TP leaves the device in clear"
ok "it leaves the device as ESP"
count l2tp 10.77.0.1
kill $(cat /tmp/device.pid) $(cat /tmp/gateway.pid)
kill $at_device $at_gateway; wait $at_device $at_gateway

# --- an inner address by IKEv2
rm -rf $device/state/* $gateway/state/* $device/sock $gateway/sock
{ settings $gateway; end gateway gateway.test '*.test'; by_nat_only
  printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' 'remote = ["dynamic"]' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]'
} >$gateway/dormouse.toml
{ settings $device; open_client; by_nat_only; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]'; } >$device/dormouse.toml
run_daemon $gateway ip netns exec gateway; run_daemon $device ip netns exec device
dm up peer >/tmp/up.log 2>&1 || fail "no session: $(cat /tmp/up.log)"
flows "IKEv2 gives one by itself in tunnel mode" 10.99.0.1
count ikev2 10.99.0.1

# --- Above tunnel mode's one header more of IP, L2TP has UDP (8), its own (6, or 8 with a length) and PPP's (4). ESP pads to four bytes.
for size in $sizes; do
  eval "plain=\$plain_$size l2tp=\$l2tp_$size ikev2=\$ikev2_$size"
  echo "$size bytes: $plain in clear, $ikev2 by IKEv2, $l2tp by L2TP"
  more=$((l2tp - ikev2))
  [ $ikev2 -gt $plain ] && [ $more -ge 16 ] && [ $more -le 20 ] || fail "L2TP has $more bytes more than IKEv2's own address"
done
ok "L2TP costs as many bytes more as its headers have"
echo PASS
