# In the virtual machine: Debian's strongSwan as the peer of our daemon, which lends its SAs to the kernel (daemon.data_path): in both roles, through a sleep,
# rekeyings by either side and moves. Every step says "ok:"; the first that fails ends the story.
. /lib.sh
. /strongswan-lib.sh
evidence() { evidence_of_lending; dm status; swan --list-sas; }
lending_modules
cable

# strongSwan's window is 32 packets: what is in the daemon when the kernel takes over may come too late for it.
# --- a gateway with an address pool
start_swan gateway "$(connection gateway.test device.test 'pools = inner' 'children { net { local_ts = 10.99.0.0/24
esp_proposals = aes128gcm16-x25519 } }')
pools { inner { addrs = 10.55.0.0/24 } }"
{ settings $device; data_path; client; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' '[connection.peer.wake]' 'probe_ms = 8000'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
swan_rekeys() { swan --rekey --child net >/tmp/swan/out; }
lends_at strongSwan swan_rekeys
dm down peer || fail "down"
kill $daemon $swan; wait $daemon $swan
[ "$(states device)" = 0 ] || fail "something is left in the kernel"

# --- strongSwan as the device
{ settings $gateway; data_path; end gateway gateway.test device.test; printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' 'rekey = 15' \
  '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]'; } >$gateway/dormouse.toml
device=$gateway # dm speaks to this daemon now
run_daemon $gateway ip netns exec gateway
start_swan device "$(connection device.test gateway.test 'remote_addrs = 10.1.0.1' 'vips = 0.0.0.0' 'children { net { remote_ts = 10.99.0.0/24
esp_proposals = aes128gcm16-x25519 } }')"
swan --initiate --child net >/tmp/swan/out 2>&1 || fail "strongSwan does not come: $(tail -n 3 /tmp/swan/out)"
flows "strongSwan as the device: data flows" 10.99.0.1
begin_load 10.99.0.1 100000
until_ 60 lent gateway || fail "the gateway lends nothing under load"
end_change "lent by the gateway"
flows "strongSwan as the device: lent under load" 10.99.0.1
begin_load 10.99.0.1 100000
carried() { [ "$(grep -o 'the kernel carries it child=[^ ]*' $gateway/log | sort -u | wc -l)" -ge 2 ]; }
until_ 60 carried || fail "new SAs are not lent"
end_change "we rekey"
flows "we rekeyed the CHILD SA under load" 10.99.0.1
begin_load 10.99.0.1 100000
until_ 60 lent gateway || fail "not lent before the move"
move 10.1.0.3 10.1.0.4
end_change "strongSwan moves"
flows "strongSwan moved under load" 10.99.0.1
echo "PASS"
