# In the virtual machine: our device, behind a NAT, and a libreswan 5.2 gateway, whose ESP is the kernel's. Certificates in small IKE
# fragments, and what becomes of resumption: libreswan looks for no NAT then and its ESP would be in no UDP, so the device does not
# keep its ticket there; with a ticket from elsewhere it notices that nothing comes back. Every step says "ok:"; the first that fails
# ends the story.
. /lib.sh
. /libreswan-lib.sh
mkdir -p $device
the_gateway
keeps_ticket() { dm status --json | grep -q '"ticket":{"held":true'; }
in_udp() { gw ip xfrm state | grep -q 'encap type espinudp'; }

esp_modules
root_directory
behind_nat
start_pluto gateway.test ' authby=rsasig' ' leftcert=gateway.test' ' leftsendcert=always' ' rightca=%same'
{ settings $device; certified client device.test gateway.test; printf '%s\n' '[connection.peer.child]' 'remote = ["10.99.0.0/24"]' \
  '[connection.peer.ike]' 'fragment_size = 576' '[connection.peer.resumption]' 'mode = "libreswan"' '[connection.peer.wake]' \
  'held_ms = 2000' 'probe_ms = 8000' 'ticket_ms = 20000' 'full_ms = 30000'; } >$device/dormouse.toml
run_daemon $device ip netns exec device
dm up peer || fail "no tunnel"
flows "behind a NAT: data flows" 10.99.0.1
said_pluto 'IKE_AUTH request fragment 1 (1 of [2-9])' || fail "no fragments"
in_udp || fail "ESP is in no UDP"
said_pluto 'sending IKE_SESSION_RESUME ticket' || fail "libreswan gives no ticket"
keeps_ticket && fail "a ticket is kept behind a NAT"
dm suspend || fail "suspend"
forgets 10.1.0.6
dm resume || fail "resume"
flows "back after the gateway lost the session" 10.99.0.1
came_by full || fail "it did not come back by a full exchange"

# --- a ticket from a network without a NAT, used behind one
dm down peer || fail "down"
ip netns exec router nft 'flush chain ip nat post; insert rule ip nat forward accept' || fail "the NAT does not go"
# What it did for its interface is forgotten with that, and what it knows of flows as soon as they rest.
ip netns exec router ip link set outside down
ip netns exec router ip link set outside up
for kind in udp_timeout udp_timeout_stream; do ip netns exec router sysctl -q -w "net.netfilter.nf_conntrack_$kind=2"; done
gw ip route add 192.168.7.0/24 via 10.1.0.6
sleep 1
dm up peer || fail "no tunnel without the NAT"
flows "without the NAT: data flows" 10.99.0.1
in_udp && fail "ESP is in UDP without a NAT"
keeps_ticket || fail "no ticket without a NAT"
dm suspend || fail "suspend again"
forgets 192.168.7.2
ip netns exec router nft 'flush chain ip nat forward; add rule ip nat forward udp dport { 500, 4500 } accept; add rule ip nat forward udp sport { 500, 4500 } accept; add rule ip nat post oifname "outside" masquerade' ||
  fail "the NAT does not come back"
dm resume || fail "resume again"
flows "the session that a ticket brought back without traffic is replaced" 10.99.0.1
said 'resumed=true' $device/log && said 'the resumed session carries nothing' $device/log || fail "it was not resumed"
came_by full || fail "it is not a full exchange that replaced it"
in_udp || fail "ESP is in no UDP again"
echo "PASS"
