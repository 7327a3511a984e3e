# What the libreswan stories share: /peer is a root directory with libreswan in it, /pki has keys and certificates. A story says in
# $where in which namespace libreswan is, and in $peer how its connection always is.

# the_gateway LINE...: the peer is the gateway, a network lies behind it, and it gives our device an address. The lines are added.
the_gateway() {
  logs="$device/log /peer/tmp/pluto.log" lines=60
  where=gateway
  peer=$(printf '%s\n' ' auto=add' ' keyexchange=ikev2' ' left=10.1.0.1' ' leftid=@gateway.test' ' leftsubnet=10.99.0.0/24' \
    ' right=%any' ' rightid=@device.test' ' rightaddresspool=10.55.0.10-10.55.0.200' ' ike=aes_gcm256-sha2_384-dh31' ' esp=aes_gcm128' \
    ' mobike=yes' ' session-resumption=yes' ' retransmit-timeout=8s' "$@")
}
# came_by RUNG: how the device came back the last time
came_by() { dm status --json | grep -q "\"last_wake\":{\"rung\":\"$1\""; }

swan() { ip netns exec "$where" chroot /peer /usr/libexec/ipsec/"$@"; }
whack() { swan whack "$@" >/tmp/whack.log 2>&1; }
said_pluto() { grep -q -e "$1" /peer/tmp/pluto.log; }
evidence() { cat /tmp/whack.log; dm status; ip netns exec "$where" ip -s xfrm state; }
# forgets ADDRESS: libreswan gives the session of the device at ADDRESS up. One that was deleted would take its ticket along: this
# delete does not arrive, and libreswan stops waiting for its answer.
forgets() {
  forgotten=$(grep -c 'deleting connection instance' /peer/tmp/pluto.log)
  gw ip route add blackhole "$1/32"
  whack --name peer --terminate
  until_ 30 more_forgotten || fail "libreswan does not forget the session"
  gw ip route del blackhole "$1/32"
}
more_forgotten() { [ "$(grep -c 'deleting connection instance' /peer/tmp/pluto.log)" -gt "$forgotten" ]; }
root_directory() {
  for place in proc sys dev; do mount --bind /$place /peer/$place; done
  cp /bin/busybox /peer/usr/bin/busybox
  chroot /peer /usr/bin/busybox --install -s /usr/bin 2>/dev/null
  # Of what libreswan's own script does, an inner address is all that is needed here; it would take seconds in this machine.
  cat >/peer/usr/bin/updown <<'UPDOWN'
#!/bin/sh
[ "$PLUTO_VERB" != up-client ] || [ -z "${PLUTO_MY_SOURCEIP:-}" ] || /usr/bin/ip addr replace "$PLUTO_MY_SOURCEIP/32" dev lo
exit 0
UPDOWN
  chmod +x /peer/usr/bin/updown
}
ipsec_conf() { # ipsec_conf LINE...: $peer and these
  printf '%s\n' 'config setup' ' logfile=/tmp/pluto.log' ' logtime=no' 'conn peer' "$peer" " leftupdown=/usr/bin/updown" "$@" >/peer/etc/ipsec.conf
}
# start_pluto OWN-IDENTITY LINE...: libreswan with one connection, and both kinds of credentials
start_pluto() {
  local own=$1; shift
  ipsec_conf "$@"
  echo '@gateway.test @device.test : PSK "a shared secret of the test"' >/peer/etc/ipsec.secrets
  chmod 600 /peer/etc/ipsec.secrets
  cp /pki/ca.pem "/pki/$own.p12" /peer/tmp/
  { chroot /peer /usr/bin/certutil -N -d sql:/var/lib/ipsec/nss --empty-password &&
    chroot /peer /usr/bin/certutil -A -d sql:/var/lib/ipsec/nss -n ca -t CT,, -a -i /tmp/ca.pem &&
    chroot /peer /usr/bin/pk12util -i "/tmp/$own.p12" -d sql:/var/lib/ipsec/nss -W ''; } >/tmp/nss.log 2>&1 || fail "no key store: $(cat /tmp/nss.log)"
  swan pluto --config /etc/ipsec.conf --nofork >/tmp/pluto.out 2>&1 &
  until_ 60 said_pluto '^addconn: "peer": added' || fail "pluto has no connection: $(cat /tmp/pluto.out)"
}
# use_connection LINE...: another one in its place
use_connection() {
  ipsec_conf "$@"
  swan addconn --config /etc/ipsec.conf peer >/tmp/whack.log 2>&1 || fail "addconn"
}
