#!/bin/bash
# The data path against what it is compared with, all in one run: one TCP stream between two network namespaces, plain veth,
# the same path without cryptography, ESP, and Debian's wireguard-go. Prints the median of REPS runs of SECS seconds each, and
# the ratios; with UDP=1 also the rate of 64-byte datagrams without loss. Needs root, iperf3, and optionally wireguard-go with wireguard-tools.
#
# usage: forward-bench.sh [path of the built example]
set -u
BIN=${1:-$(dirname "$0")/../../../target/release/examples/forward}
REPS=${REPS:-3} SECS=${SECS:-4}
A=dmfa$$ B=dmfb$$ PIDS=()
cleanup() {
  [ ${#PIDS[@]} -gt 0 ] && kill "${PIDS[@]}" 2>/dev/null
  ip netns del $A 2>/dev/null; ip netns del $B 2>/dev/null
  rm -f /tmp/dmf$$.*
}
trap cleanup EXIT INT TERM
stop() { [ ${#PIDS[@]} -gt 0 ] && kill "${PIDS[@]}" 2>/dev/null && wait "${PIDS[@]}" 2>/dev/null; PIDS=(); }
ticks() { local s=0 p t; for p in "$@"; do t=$(awk '{sub(/^.*\) /,"");print $12+$13}' /proc/$p/stat 2>/dev/null || echo 0); s=$((s + t)); done; echo $s; }

ip netns add $A && ip netns add $B || exit 1
ip link add dmv netns $A type veth peer name dmv netns $B
for n in $A $B; do ip -n $n link set lo up; ip -n $n link set dmv mtu 1500 up; done
ip -n $A addr add 10.77.0.1/24 dev dmv; ip -n $B addr add 10.77.0.2/24 dev dmv

# lossless ADDRESS: the highest rate of 64-byte UDP datagrams, in thousands a second, with less than 1 % lost (2 s each)
lossless() {
  local k best=0
  for k in 10 20 30 40 50 60 80 100 120 150 200; do
    ip netns exec $A iperf3 -c $1 -u -l 64 -b $((k * 512))K -t 2 -J |
      awk -F'[:,]' -v k=$k '/"lost_percent"/{l=$2} /"packets"/{p=$2} END{exit !(l < 1 && p > 1900 * k)}' || break
    best=$k
  done
  echo $best
}
# measure LABEL ADDRESS: median Mbit/s into RESULT, with the daemons' CPU and the mean round trip
measure() {
  local server i v all=() c0 c1 rtt cpu udp=
  ip netns exec $B iperf3 -s >/dev/null 2>&1 & server=$!
  sleep 0.5; c0=$(ticks "${PIDS[@]:-0}")
  for ((i = 0; i < REPS; i++)); do
    v=$(ip netns exec $A iperf3 -c $2 -t $SECS -J |
      awk -F: '/"sum_received"/{s=1} s&&/bits_per_second/{printf "%.0f", $2/1e6; exit}')
    all+=("${v:-0}")
  done
  c1=$(ticks "${PIDS[@]:-0}")
  RESULT=$(printf '%s\n' "${all[@]}" | sort -n | sed -n $(((REPS + 1) / 2))p)
  cpu=$(((c1 - c0) * 100 / $(getconf CLK_TCK) / (REPS * SECS)))
  rtt=$(ip netns exec $A ping -q -c 100 -i 0.01 $2 | awk -F/ '/^rtt/{printf "%.0f", $5*1000}')
  [ -n "${UDP:-}" ] && udp=$(lossless $2)
  printf '%-22s %8s Mbit/s   CPU %4s %%   ping %5s us   %s[%s]\n' \
    "$1" "$RESULT" "$cpu" "$rtt" "${udp:+$udp kpps   }" "${all[*]}"
  kill $server; wait $server 2>/dev/null
}
forward() {
  ip netns exec $A "$BIN" $1 a tun0 10.77.0.1:4500 10.77.0.2:4500 2>/tmp/dmf$$.a & PIDS=($!)
  ip netns exec $B "$BIN" $1 b tun0 10.77.0.2:4500 10.77.0.1:4500 2>/tmp/dmf$$.b & PIDS+=($!)
  sleep 0.5
  ip -n $A addr add 10.99.0.1/24 dev tun0; ip -n $B addr add 10.99.0.2/24 dev tun0
  measure "forward $1" 10.99.0.2; stop
  [ -n "${VERBOSE:-}" ] && sort /tmp/dmf$$.a /tmp/dmf$$.b | uniq -c | head -20
}
# side NAMESPACE INTERFACE OWN-ADDRESS KEY PEER-KEY PEER-ADDRESS: the interfaces' names differ, and with them the control sockets
wireguard_side() {
  ip netns exec $1 wg set $2 private-key $4 listen-port 51820 peer $5 endpoint $6:51820 allowed-ips 0.0.0.0/0
  ip -n $1 addr add $3/24 dev $2; ip -n $1 link set $2 mtu 1420 up
}
wireguard() {
  local n key=/tmp/dmf$$.key
  for n in a b; do
    (umask 077; wg genkey >$key.$n); wg pubkey <$key.$n >$key.$n.pub
    LOG_LEVEL=error ip netns exec dmf$n$$ wireguard-go -f wg$n$$ >/dev/null 2>&1 & PIDS+=($!)
  done
  sleep 1.5
  wireguard_side $A wga$$ 10.98.0.1 $key.a "$(cat $key.b.pub)" 10.77.0.2
  wireguard_side $B wgb$$ 10.98.0.2 $key.b "$(cat $key.a.pub)" 10.77.0.1
  measure "wireguard-go" 10.98.0.2; stop
}

for what in ${WHAT:-veth plain esp wireguard}; do
  case $what in
    veth) measure "plain veth" 10.77.0.2 ;;
    plain) forward --plain; plain=$RESULT ;;
    esp) forward --esp; esp=$RESULT ;;
    wireguard) command -v wireguard-go >/dev/null && command -v wg >/dev/null && { wireguard; wg=$RESULT; } ;;
  esac
done
awk -v e="${esp:-0}" -v p="${plain:-0}" -v w="${wg:-0}" 'BEGIN {
  if (e && p) printf "ESP / plaintext forwarding: %.0f %%\n", 100 * e / p
  if (e && w) printf "ESP / wireguard-go: %.1f\n", e / w }'
