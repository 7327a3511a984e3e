# In the virtual machine: transport mode between our daemon and Debian's strongSwan, whose ESP is the kernel's, with a NAT before the
# device: we are the device, then strongSwan is. Ping, TCP and UDP in both directions, and both ends rekey. Every step says "ok:"; the
# first that fails ends the story.
. /lib.sh
. /strongswan-lib.sh

# A file of 300 kB over HTTP, and an echo of UDP, on both hosts.
mkdir -p /tmp/www
dd if=/dev/urandom of=/tmp/www/file bs=1000 count=300 2>/dev/null
wanted=$(md5sum </tmp/www/file)
serve() {
  "$1" httpd -p 8080 -h /tmp/www
  "$1" perl -e 'socket(S,2,2,17); bind(S,pack("Sna4x8",2,7777,"\0" x 4)) or die; while (defined($from=recv(S,$text,2000,0))) { send(S,$text,0,$from) }' &
}
echoes() { # echoes HOST ADDRESS: ten datagrams of ten sizes
  "$1" perl -e '$SIG{ALRM}=sub{exit 1}; alarm 20; socket(S,2,2,17); connect(S,pack("Sna4x8",2,7777,pack("C4",split(/\./,$ARGV[0]))));
    for $i (1..10) { $text="dormouse" x (13*$i); send(S,$text,0); recv(S,$back,2000,0); exit 1 if $back ne $text }' "$2"
}
fetches() { [ "$("$1" timeout 40 wget -q -O - "http://$2:8080/file" | md5sum)" = "$wanted" ]; }
both_ways() { # the gateway knows the device by the address of its NAT
  flows "$1: ping" 10.1.0.1
  fetches dev 10.1.0.1 || fail "no TCP from the device: $1"
  echoes dev 10.1.0.1 || fail "no UDP from the device: $1"
  fetches gw 10.1.0.6 || fail "no TCP from the gateway: $1"
  echoes gw 10.1.0.6 || fail "no UDP from the gateway: $1"
  ok "$1: TCP and UDP both ways"
}
in_udp() { # the kernel's ESP is in UDP, in transport mode, and passes packets both ways
  ip netns exec $where ip -s xfrm state >/tmp/xfrm
  grep -q 'mode transport' /tmp/xfrm && grep -q 'encap type espinudp' /tmp/xfrm || fail "no transport mode in UDP: $1"
  [ "$(grep -c -E '[1-9][0-9]*\(bytes\), [1-9][0-9]*\(packets\)' /tmp/xfrm)" -ge 2 ] || fail "ESP does not pass both ways: $1"
}

esp_modules
behind_nat
serve dev
serve gw

# --- our device, strongSwan's gateway
start_swan gateway "$(connection gateway.test device.test 'children { net { mode = transport
esp_proposals = aes128gcm16-x25519 } }')"
{ settings $device; client; printf '%s\n' '[connection.peer.child]' 'mode = "transport"' 'rekey = 20'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no transport mode"
both_ways "behind a NAT"
in_udp "behind a NAT"
swan --rekey --child net >/tmp/swan/out || fail "strongSwan does not rekey"
both_ways "strongSwan rekeyed"
rekeyed() { [ "$(grep -c 'inbound CHILD_SA net' /tmp/swan/log)" -ge 3 ]; }
until_ 60 rekeyed || fail "we do not rekey"
both_ways "we rekeyed"
in_udp "rekeyed"
dm down peer || fail "down"
kill $daemon $swan; wait $daemon $swan

# --- strongSwan's device, our gateway
{ settings $gateway; end gateway gateway.test device.test; printf '%s\n' '[connection.peer.child]' 'mode = "transport"'; } >$gateway/dormouse.toml
device=$gateway # dm speaks to this daemon now
run_daemon $gateway ip netns exec gateway
start_swan device "$(connection device.test gateway.test 'remote_addrs = 10.1.0.1' 'children { net { mode = transport
esp_proposals = aes128gcm16-x25519 } }')"
swan --initiate --child net >/tmp/swan/out 2>&1 || fail "strongSwan does not come: $(tail -n 3 /tmp/swan/out)"
both_ways "strongSwan behind a NAT"
in_udp "strongSwan behind a NAT"
swan --rekey --child net >/tmp/swan/out || fail "strongSwan does not rekey"
both_ways "strongSwan rekeyed from behind a NAT"
echo "PASS"
