# What the strongSwan stories share: charon of this machine's Debian, with ESP in the kernel, in the namespace $where.
mkdir -p $device $gateway
logs="$device/log $gateway/log /tmp/swan/log" lines=60
evidence() { dm status; ip netns exec $where ip -s xfrm state; swan --list-sas; }

# start_swan NAMESPACE CONNECTIONS: charon there
start_swan() {
  where=$1
  mkdir -p /tmp/swan; rm -f /tmp/swan/vici
  printf '%s\n' 'swanctl {' 'load = openssl random' '}' 'charon {' 'load = random nonce openssl kdf hmac sha2 aes gcm kernel-netlink socket-default vici' \
    'filelog { f { path = /tmp/swan/log' 'default = 1' 'flush_line = yes } }' 'plugins { vici { socket = unix:///tmp/swan/vici } } }' \
    >/tmp/swan/strongswan.conf
  printf '%s\n' "$2" 'secrets { ike-1 { secret = "a shared secret of the test" } }' >/tmp/swan/swanctl.conf
  export STRONGSWAN_CONF=/tmp/swan/strongswan.conf SWANCTL_DIR=/tmp/swan
  rm -f /run/charon.pid
  ip netns exec $where charon >/tmp/swan/out 2>&1 &
  swan=$!
  until_ 30 test -S /tmp/swan/vici || fail "charon does not come up: $(cat /tmp/swan/out)"
  swan --load-all >/tmp/swan/out 2>&1 || fail "charon does not take its configuration: $(cat /tmp/swan/out)"
}
swan() { ip netns exec $where swanctl "$@" --uri unix:///tmp/swan/vici; }
connection() { # connection OWN PEER LINE...: strongSwan's side; `children` are among the lines
  local own=$1 other=$2; shift 2
  printf '%s\n' 'connections { peer {' 'version = 2' 'proposals = aes128gcm16-prfsha256-x25519' "local { auth = psk" "id = $own }" \
    "remote { auth = psk" "id = $other }" "$@" '} }'
}
