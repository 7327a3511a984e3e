# In the virtual machine: our device joins a libreswan 5.2 gateway, whose ESP is the kernel's. A pre-shared key and certificates;
# data both ways; rekeying by either side; a new address; and the session resumed in libreswan's dialect after the gateway has
# lost it. Every step says "ok:"; the first that fails ends the story.
. /lib.sh
. /libreswan-lib.sh
mkdir -p $device
the_gateway ' modecfgdns=10.99.0.1'
# ours CHILD-LINE IKE-LINE: the rest of the device's configuration; everything is slow here
ours() {
  printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' "$1" '[connection.peer.ike]' "$2" '[connection.peer.resumption]' \
    'mode = "libreswan"' '[connection.peer.wake]' 'probe_ms = 8000' 'ticket_ms = 20000' 'full_ms = 30000'
}

esp_modules
root_directory
cable
start_pluto gateway.test ' authby=secret'
{ settings $device; client; ours "" ""; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no tunnel"
flows "a pre-shared key: data flows" 10.99.0.1
dm status --json | grep -q 10.55.0.10 || fail "no inner address"

whack --name peer --rekey-child || fail "libreswan does not rekey the CHILD SA"
flows "libreswan rekeyed the CHILD SA" 10.99.0.1
whack --name peer --rekey-ike || fail "libreswan does not rekey the IKE SA"
flows "libreswan rekeyed the IKE SA" 10.99.0.1
said_pluto 'initiator rekeyed Child SA' && said_pluto 'initiator rekeyed IKE SA' || fail "libreswan says nothing of rekeying"

dm suspend || fail "suspend"
forgets 10.1.0.2
dm resume || fail "resume"
flows "resumed by ticket after the gateway lost the session" 10.99.0.1
came_by ticket || fail "it did not come back by ticket"
said_pluto 'authenticated peer using authby=session-resume' || fail "libreswan did not resume"

move 10.1.0.2 10.1.0.3
flows "moved to another address" 10.99.0.1
came_by mobike || fail "it did not follow by MOBIKE"
dm down peer || fail "down"
until_ 10 said_pluto 'deleting IKE SA' || fail "the delete did not come"
kill $daemon; wait $daemon

# --- certificates, and we are the one who rekeys
use_connection ' authby=rsasig' ' leftcert=gateway.test' ' leftsendcert=always' ' rightca=%same'
{ settings $device; certified client device.test gateway.test; ours 'rekey = 10' 'rekey = 30'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no tunnel by certificates"
flows "certificates: data flows" 10.99.0.1
said_pluto 'authenticated peer certificate' || fail "libreswan believed no certificate"
until_ 40 said_pluto 'responder rekeyed Child SA' || fail "we rekey no CHILD SA"
flows "we rekeyed the CHILD SA" 10.99.0.1
until_ 60 said_pluto 'responder rekeyed IKE SA' || fail "we rekey no IKE SA"
flows "we rekeyed the IKE SA" 10.99.0.1
dm down peer || fail "down"
kill $daemon; wait $daemon

# --- small fragments: libreswan takes and sends them, but agrees to none in a resumed session, whose messages then are whole
{ settings $device; certified client device.test gateway.test; ours '' 'fragment_size = 576'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no tunnel with small fragments"
flows "small fragments: data flows" 10.99.0.1
fragments() { grep -c 'IKE_AUTH request fragment 1 (1 of [2-9])' /peer/tmp/pluto.log; }
[ "$(fragments)" -ge 1 ] || fail "no fragments"
before=$(fragments)
dm suspend || fail "suspend"
forgets 10.1.0.3
dm resume || fail "resume"
flows "resumed where fragments are small" 10.99.0.1
came_by ticket || fail "it did not come back by ticket"
[ "$(fragments)" = "$before" ] || fail "fragments in the resumed session, to which libreswan did not agree"
rekeyed=$(grep -c 'initiator rekeyed IKE SA' /peer/tmp/pluto.log)
whack --name peer --rekey-ike || fail "libreswan does not rekey the resumed IKE SA"
[ "$(grep -c 'initiator rekeyed IKE SA' /peer/tmp/pluto.log)" -gt "$rekeyed" ] || fail "libreswan says nothing of rekeying"
flows "libreswan rekeyed the resumed IKE SA" 10.99.0.1
echo "PASS"
