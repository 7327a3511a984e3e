# In the virtual machine: the whole path under each of paper 004's governors. Its frequencies are emulated by stopping the machine for a
# part of the time, so that powersave must come out slower than performance: the proof that a comparison of governors says something here.
. /lib.sh
governors=performance,ondemand,conservative,powersave
logs="/tmp/out /tmp/err"
lines=40
for module in acpi-cpufreq cpufreq_powersave cpufreq_ondemand cpufreq_conservative veth tun; do
  modprobe $module || fail "no module $module"
done
frequency=/sys/devices/system/cpu/cpu0/cpufreq
for governor in $(echo $governors | tr , ' '); do
  grep -q -w "$governor" $frequency/scaling_available_governors || fail "no governor $governor"
done
found=$(cat $frequency/scaling_governor)
ok "the machine has paper 004's governors"

dormouse bench --quick --what path --suites aes128-sha1 --sizes 1400 --cores 1 --repeat 5 --governors $governors --out /tmp/governors.json \
  >/tmp/out 2>/tmp/err || fail "a campaign under four governors"
[ "$(cat $frequency/scaling_governor)" = "$found" ] || fail "the governor is not put back"
ok "the path is measured under each"

dormouse lab run paper-004 --results /tmp/governors.json >/tmp/out 2>/tmp/err || fail "the report"
said 'a processor emulated by software: counts and directions alone' /tmp/out || fail "the report does not say what the machine is"
said 'frequencies emulated' /tmp/out || fail "powersave is not 1.3 times slower than performance"
ok "powersave is slower than performance, and the rules about governors are judged"
echo "raw data:"
gzip -c /tmp/governors.json | base64
echo "end of raw data"
echo PASS
