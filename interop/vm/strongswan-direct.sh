# In the virtual machine: Debian's strongSwan whose ESP is the kernel's, on a path without NAT, so that ESP is a protocol of its own
# (no UDP): our device joins it in tunnel mode and in transport mode, and it joins our gateway; either moves to another address.
# Every step says "ok:"; the first that fails ends the story.
. /lib.sh
. /strongswan-lib.sh
raw() { # the kernel's ESP is in no UDP, and passes packets both ways
  ip netns exec $where ip -s xfrm state >/tmp/xfrm
  grep -q 'proto esp' /tmp/xfrm && ! grep -q encap /tmp/xfrm || fail "ESP is not the kernel's, or in UDP: $1"
  [ "$(grep -c -E '[1-9][0-9]*\(bytes\), [1-9][0-9]*\(packets\)' /tmp/xfrm)" -ge 2 ] || fail "ESP does not pass both ways: $1"
}

esp_modules
cable

# --- a gateway with an address pool, in tunnel mode
start_swan gateway "$(connection gateway.test device.test 'pools = inner' 'children { net { local_ts = 10.99.0.0/24
esp_proposals = aes128gcm16-x25519, aes256gmac-x25519 } }')
pools { inner { addrs = 10.55.0.0/24 } }"
{ settings $device; client; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' '[connection.peer.wake]' 'probe_ms = 8000' \
  '[connection.peer.children.clear]' 'protection = "authenticated"' 'remote = ["10.99.0.0/24"]' 'choose = { dscp = [46] }'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no tunnel"
flows "tunnel mode: data flows" 10.99.0.1
raw "tunnel mode"
swan --rekey --child net >/tmp/swan/out || fail "strongSwan does not rekey"
flows "strongSwan rekeyed the CHILD SA" 10.99.0.1
move 10.1.0.2 10.1.0.3
flows "moved to another address" 10.99.0.1
raw "after the move"
grep -q 'src 10.1.0.3 dst 10.1.0.1' /tmp/xfrm || fail "strongSwan's kernel does not know the new address"
until_ 10 ip netns exec device ping -c 1 -W 1 -Q 184 10.99.0.1 || fail "what is only authenticated does not pass"
dm status | grep -q aes256gmac || fail "no AES-GMAC: $(dm status)"
ip netns exec $where ip -s xfrm state | grep -A 20 'rfc4543(gcm(aes))' | grep -q -E '[1-9][0-9]*\(packets\)' || fail "the kernel's AES-GMAC has no packets"
ok "packets that are authenticated and not encrypted, with a key of 256 bits"
dm down peer || fail "down"
kill $daemon $swan; wait $daemon $swan

# --- two hosts, in transport mode
start_swan gateway "$(connection gateway.test device.test 'children { net { mode = transport
esp_proposals = aes128gcm16-x25519 } }')"
{ settings $device; client; printf '%s\n' '[connection.peer.child]' 'mode = "transport"' 'local = ["10.1.0.3/32"]' 'remote = ["10.1.0.1/32"]'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no transport mode"
flows "transport mode: data flows" 10.1.0.1
raw "transport mode"
grep -q 'mode transport' /tmp/xfrm || fail "the kernel's SA is not in transport mode"
dm down peer || fail "down"
kill $daemon $swan; wait $daemon $swan

# --- strongSwan as the device
{ settings $gateway; end gateway gateway.test device.test; printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' \
  '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]'; } >$gateway/dormouse.toml
device=$gateway # dm speaks to this daemon now
run_daemon $gateway ip netns exec gateway
start_swan device "$(connection device.test gateway.test 'remote_addrs = 10.1.0.1' 'vips = 0.0.0.0' 'children { net { remote_ts = 10.99.0.0/24
esp_proposals = aes128gcm16-x25519 } }')"
swan --initiate --child net >/tmp/swan/out 2>&1 || fail "strongSwan does not come: $(tail -n 3 /tmp/swan/out)"
flows "strongSwan as the device: data flows" 10.99.0.1
raw "strongSwan as the device"
move 10.1.0.3 10.1.0.4
flows "strongSwan moved to another address" 10.99.0.1
raw "after strongSwan's move"
echo "PASS"
