# In the virtual machine: a libreswan 5.2 device, whose ESP is the kernel's, joins our gateway. A pre-shared key and certificates;
# data both ways; rekeying by either side; a new address; and sessions resumed in libreswan's dialect, also after a restart of our
# gateway. Every step says "ok:"; the first that fails ends the story.
. /lib.sh
. /libreswan-lib.sh
mkdir -p $gateway
device=$gateway # dm speaks to the only daemon
logs="$gateway/log /peer/tmp/pluto.log" lines=60
where=device
peer=' auto=add
 keyexchange=ikev2
 left=%defaultroute
 leftid=@device.test
 leftmodecfgclient=yes
 leftsubnet=0.0.0.0/0
 right=10.1.0.1
 rightid=@gateway.test
 rightsubnet=10.99.0.0/24
 ike=aes_gcm256-sha2_384-dh31
 esp=aes_gcm128
 mobike=yes
 session-resumption=yes'
# ours CHILD-LINE IKE-LINE: the rest of the gateway's configuration
ours() {
  printf '%s\n' '[connection.peer.child]' 'local = ["10.99.0.0/24"]' 'remote = ["dynamic"]' "$1" '[connection.peer.ike]' "$2" \
    '[connection.peer.resumption]' 'mode = "libreswan"' '[connection.peer.pool]' 'addresses = ["10.55.0.0/24"]' 'dns = ["10.99.0.1"]'
}
both_ways() { # the gateway begins too
  inner=$(dev ip -o -4 addr show dev lo | sed -n 's/.* inet \(10[.]55[.0-9]*\).*/\1/p')
  [ -n "$inner" ] || fail "no inner address: $1"
  flows "$1" -I "$inner" 10.99.0.1
  gw ping -c 3 -i 0.2 -W 5 -I 10.99.0.1 "$inner" >/tmp/ping.log || fail "nothing passes from the gateway: $1"
}
came() { [ "$(grep -c "a client came .*resumed=$1" $gateway/log)" = "$2" ]; }

esp_modules
root_directory
cable
{ settings $gateway; end gateway gateway.test device.test; ours "" ""; } >$gateway/dormouse.toml
run_daemon $gateway ip netns exec gateway
start_pluto device.test ' authby=secret'
whack --name peer --initiate || fail "no tunnel"
both_ways "a pre-shared key: data flows"
move 10.1.0.2 10.1.0.3
both_ways "moved to another address"

whack --name peer --rekey-child || fail "libreswan does not rekey the CHILD SA"
both_ways "libreswan rekeyed the CHILD SA"

whack --name peer --suspend || fail "libreswan does not suspend"
cat /tmp/whack.log
whack --name peer --initiate || fail "libreswan does not resume"
cat /tmp/whack.log
both_ways "resumed by ticket"
came true 1 || fail "we resumed nothing"
whack --name peer --suspend || fail "libreswan does not suspend again"
kill -9 $daemon; wait $daemon 2>/dev/null
run_daemon $gateway ip netns exec gateway
whack --name peer --initiate || fail "libreswan does not resume after our restart"
both_ways "resumed by ticket after a restart of our gateway"
came true 2 || fail "we resumed nothing after our restart"

# libreswan gives its ticket up with the keys that it belongs to, and asks for no other: after that it could not suspend.
whack --name peer --rekey-ike || fail "libreswan does not rekey the IKE SA"
both_ways "libreswan rekeyed the IKE SA"
said_pluto 'initiator rekeyed Child SA' && said_pluto 'initiator rekeyed IKE SA' || fail "libreswan says nothing of rekeying"

whack --name peer --terminate || fail "libreswan does not log out"

# --- certificates, and we are the one who rekeys
kill $daemon; wait $daemon 2>/dev/null
{ settings $gateway; certified gateway gateway.test device.test; ours 'rekey = 10' 'rekey = 30'; } >$gateway/dormouse.toml
run_daemon $gateway ip netns exec gateway
use_connection ' authby=rsasig' ' leftcert=device.test' ' leftsendcert=always' ' rightca=%same'
whack --name peer --initiate || fail "no tunnel by certificates"
both_ways "certificates: data flows"
until_ 40 said_pluto 'responder rekeyed Child SA' || fail "we rekey no CHILD SA"
both_ways "we rekeyed the CHILD SA"
until_ 60 said_pluto 'responder rekeyed IKE SA' || fail "we rekey no IKE SA"
both_ways "we rekeyed the IKE SA"
echo "PASS"
