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
lends_at libreswan whack --name peer --rekey-child
dm down peer || fail "down"
[ "$(states device)" = 0 ] || fail "something is left in the kernel"
echo "PASS"
