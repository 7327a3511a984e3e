# In the virtual machine: our device and our gateway, whose ESP the kernel carries under load: first in UDP, where the device alone lends, then as a protocol of its
# own, at both ends. Lent and called back without a loss, through a sleep, a rekeying and a move; what a killed daemon leaves is removed; nothing leaves in clear.
# Every step says "ok:"; the first that fails ends the story.
. /lib.sh
mkdir -p $device $gateway
logs="$device/log $gateway/log"
evidence() { evidence_of_lending; dm status; }
lending_modules
cable

# ends CARRIER LINE...: both daemons; the lines are the device's
ends() {
  local carrier=$1; shift
  { settings $gateway; data_path; printf '%s\n' '[standin]' 'enabled = false'; end gateway gateway.test device.test; printf '%s\n' '[connection.peer.child]' \
    'local = ["10.99.0.0/24"]' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]' '[connection.peer.ike]' "esp_in_udp = \"$carrier\""; } >$gateway/dormouse.toml
  run_daemon $gateway ip netns exec gateway; gateway_daemon=$daemon
  { settings $device; data_path; client; printf '%s\n' '[connection.peer.wake]' 'probe_ms = 8000' '[connection.peer.ike]' "esp_in_udp = \"$carrier\"" \
    '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' "$@"; } >$device/dormouse.toml
  run_daemon $device ip netns exec device; device_daemon=$daemon
  dm up peer || fail "no tunnel"
  flows "data flows ($carrier)" 10.99.0.1
}
stop_ends() { dm down peer; kill $device_daemon $gateway_daemon; wait $device_daemon $gateway_daemon; }
nothing_left() {
  for name in device gateway; do
    [ "$(states $name)" = 0 ] && [ -z "$(ip netns exec $name ip xfrm policy)" ] || fail "something is left in the kernel of the $name: $1"
    ! ip netns exec $name ip link show dormouse0-esp >/dev/null 2>&1 || fail "the interface is left: $1"
  done
  ok "nothing is left in the kernel: $1"
}
bulk() { # bulk WORDS: under load, the device's packets are the kernel's, and none is lost
  local by_device by_gateway
  until_ 60 returned device && until_ 60 returned gateway || fail "not called back before: $1"
  by_device=$(loans device) by_gateway=$(loans gateway)
  begin_load 10.99.0.1 3600 16
  until_ 60 lends_more device $by_device || fail "the device lends nothing under load: $1"
  [ "$carrier" = always ] || until_ 60 lends_more gateway $by_gateway || fail "the gateway lends nothing under load: $1"
  # In UDP, a train of packets that arrives in the moment may be lost.
  if [ "$carrier" = always ]; then end_change "lent in UDP"; else end_load "$1"; fi
  until_ 60 returned device && until_ 60 returned gateway || fail "not called back: $1"
  flows "$1" 10.99.0.1
}

for carrier in always nat; do
  ends $carrier
  [ "$(states device)" = 0 ] || fail "lent without load"
  bulk "lent under load and called back when idle ($carrier)"

  lends_through_a_sleep "$carrier"
  dm status --json | grep -q '"last_wake":{"rung":"held"' || fail "the session did not outlast the sleep: $(dm status --json)"

  # --- another address in the midst of the load
  begin_load 10.99.0.1 100000
  until_ 60 lent device || fail "not lent before the move"
  move 10.1.0.2 10.1.0.3
  end_change "moving"
  flows "moved in the midst of load ($carrier)" 10.99.0.1
  bulk "lent on the new path ($carrier)"
  stop_ends
  nothing_left "after an orderly end ($carrier)"
  move 10.1.0.3 10.1.0.2

  # --- new keys every few seconds in the midst of the load, then killed
  ends $carrier 'rekey = 10'
  begin_load 10.99.0.1 100000
  children() { [ "$(grep -o 'the kernel carries it child=[^ ]*' $device/log | sort -u | wc -l)" -gt "$1" ]; }
  before=$(grep -o 'the kernel carries it child=[^ ]*' $device/log | sort -u | wc -l)
  until_ 60 children $before || fail "no new keys, or those are not lent"
  end_change "rekeying"
  flows "rekeyed in the midst of load ($carrier)" 10.99.0.1
  begin_load 10.99.0.1 100000
  # New keys come every ten seconds: it is stopped first.
  stopped_while_lent() { kill -STOP $device_daemon; ! lent device || return 0; kill -CONT $device_daemon; return 1; }
  until_ 60 stopped_while_lent || fail "not lent before the kill"
  kill -9 $device_daemon; wait $device_daemon
  [ "$(states device)" = 2 ] || fail "the kernel has given up what the killed daemon lent it"
  stop_load
  rm -f $device/sock
  # As if daemon.interface had another value since.
  ip -n device link set dormouse0-esp down && ip -n device link set dormouse0-esp name former-esp || fail "rename"
  run_daemon $device ip netns exec device; device_daemon=$daemon
  ip -n device link show former-esp 2>/dev/null && fail "its interface is still there"
  [ "$(states device)" = 0 ] || fail "what a killed daemon left is still there"
  dm up peer || fail "no tunnel after the kill"
  flows "killed and started again ($carrier)" 10.99.0.1
  stop_ends
  nothing_left "after a kill ($carrier)"
done
echo PASS
