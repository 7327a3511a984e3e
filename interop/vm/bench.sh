# In the virtual machine: the kernel's ESP and the kernel's WireGuard are measured beside ours, frequency governors are set and put
# back however a campaign ends. That it works is what is asserted; speeds mean nothing here.
. /lib.sh
governor=/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
guard=/run/dormouse-governors
logs="/tmp/out /tmp/err"
lines=40
evidence() { cat $governor $guard; ls /run/netns; }
now_is() { [ "$(cat $governor)" = "$1" ]; }
# A small campaign of cryptography alone, in place of the shell that calls it, so that signals reach it; more arguments follow.
crypto() { exec dormouse bench --what crypto --quick --suites null-sha1 --sizes 180 --cores 1 "$@"; }

for module in acpi-cpufreq cpufreq_powersave veth tun wireguard esp4 xfrm_user aesni_intel gcm ctr seqiv echainiv; do
  modprobe $module 2>/dev/null
done

# --- governors
[ -e $governor ] || fail "no governor in this machine"
found=$(cat $governor)
[ "$found" = powersave ] && other=performance || other=powersave
(crypto --governors turbo --repeat 1) >/tmp/out 2>/tmp/err && fail "a governor that does not exist is accepted"
grep -q 'no governor is called "turbo" here; there are .*powersave' /tmp/err || fail "the refusal does not name what there is"
now_is "$found" || fail "a refused campaign changed the governor"
ok "a governor that cannot be set is refused with those that can"

(crypto --governors "$other,$found" --repeat 1 --out /tmp/governors.json) >/tmp/out 2>/tmp/err || fail "a campaign under two governors"
grep -q "\"governor\": *\"$other\"" /tmp/governors.json || fail "the file does not say under which governor"
now_is "$found" || fail "the governor is not put back"
[ ! -e $guard ] || fail "the guard file stays"
ok "governors are set in turn, and the one that was there is put back"

crypto --governors "$other" --repeat 5000 >/tmp/out 2>/tmp/err & campaign=$!
until_ 60 now_is "$other" || fail "the governor is never set"
kill -INT $campaign; wait $campaign
now_is "$found" || fail "an interrupt leaves another governor behind"
[ ! -e $guard ] || fail "the guard file stays after an interrupt"
ok "an interrupted campaign puts the governor back"

crypto --governors "$other" --repeat 5000 >/tmp/out 2>/tmp/err & campaign=$!
until_ 60 now_is "$other" || fail "the governor is never set"
kill -KILL $campaign; wait $campaign
[ -e $guard ] || fail "a killed campaign left no note"
(crypto --repeat 1) >/tmp/out 2>/tmp/err || fail "the campaign after a killed one"
now_is "$found" || fail "the next campaign does not put the governor back"
[ ! -e $guard ] || fail "the guard file stays after it was used"
ok "what a killed campaign left behind is put back by the next"

# --- the kernel's own tunnels
dormouse bench --what path --quick --repeat 1 --suites aes128gcm16 --sizes 1400 --out /tmp/path.json >/tmp/out 2>/tmp/err || fail "the path"
for engine in kernel wireguard; do
  # One line of the table for each: its second last column of figures is not a dash.
  grep -E "^path [a-z0-9]+ \\($engine\\) .* [0-9.]+ +[0-9.]+ " /tmp/out || fail "$engine is not measured"
done
now_is "$found" || fail "a campaign without governors changed one"
[ -z "$(ls /run/netns)" ] || fail "namespaces are left"
[ -z "$(ip -o link show type wireguard)" ] || fail "a device is left"
ok "the kernel's ESP and the kernel's WireGuard are measured, and nothing is left"
echo PASS
