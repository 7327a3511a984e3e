# In the virtual machine: libreswan 5.2 as the gateway of our device, which lends its SA to the kernel (daemon.data_path): through a sleep, a rekeying and a
# move. Every step says "ok:"; the first that fails ends the story.
. /lib.sh
. /libreswan-lib.sh
mkdir -p $device
the_gateway ' modecfgdns=10.99.0.1'
evidence() { cat /tmp/whack.log; dm status; evidence_of_lending; }
lending_modules
root_directory
cable
start_pluto gateway.test ' authby=secret'
{ settings $device; data_path; client; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' '[connection.peer.resumption]' \
  'mode = "libreswan"' '[connection.peer.wake]' 'probe_ms = 8000' 'ticket_ms = 20000' 'full_ms = 30000'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no tunnel"
flows "data flows" 10.99.0.1
begin_load 10.99.0.1 100000
until_ 20 lent device || fail "nothing is lent under load"
end_change "lent"
until_ 20 returned device || fail "not called back"
flows "lent under load and called back" 10.99.0.1
begin_load 10.99.0.1 100000
until_ 20 lent device || fail "not lent before the rekeying"
whack --name peer --rekey-child || fail "libreswan does not rekey the CHILD SA"
end_change "libreswan rekeys"
flows "libreswan rekeyed the CHILD SA under load" 10.99.0.1
begin_load 10.99.0.1 3000
until_ 20 lent device || fail "the new SA is not lent"
dm suspend || fail "suspend"
until_ 10 returned device || fail "not called back for the sleep"
dm resume || fail "resume"
wait $loader
flows "asleep and awake in the midst of load" 10.99.0.1
begin_load 10.99.0.1 100000
until_ 20 lent device || fail "not lent before the move"
move 10.1.0.2 10.1.0.3
end_change "moving"
flows "moved under load" 10.99.0.1
dm down peer || fail "down"
[ "$(states device)" = 0 ] || fail "something is left in the kernel"
echo "PASS"
