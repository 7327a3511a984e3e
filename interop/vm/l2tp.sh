# In the virtual machine: `lab run paper-001-l2tp`, whose arguments these are. Paper 001's own stack, L2TP/IPsec with a pre-shared key, beside no
# IPsec and beside an inner address by IKEv2. The experiment itself looks whether packets leave protected; its raw data are printed.
. /lib.sh
logs="/tmp/out /tmp/err"
lines=40
# /dev/ppp is there once its module is.
for module in veth tun ppp_generic pppox l2tp_ppp ppp_async ppp_synctty; do modprobe $module || fail "no module $module"; done
mkdir -p /usr/sbin /etc/ppp /run/xl2tpd
# xl2tpd starts it there.
ln -s /usr/bin/pppd /usr/sbin/pppd
mount -t devpts devpts /dev/pts
touch /etc/ppp/options /etc/ppp/chap-secrets /etc/ppp/pap-secrets
# What the kernel has to say must not stand in the middle of the data.
dmesg -n 1
dormouse lab run paper-001-l2tp "$@" --out /tmp/l2tp.json 2>&1 >/tmp/out | tee /tmp/err
said '^Provenance' /tmp/out || fail "no report"
said 'a processor emulated by software: counts and directions alone' /tmp/out || fail "the report does not say what the machine is"
[ -z "$(ls /run/netns)" ] || fail "namespaces are left"
ok "L2TP/IPsec is measured, and nothing is left"
echo "raw data:"
cat /tmp/l2tp.json
echo
echo "end of raw data"
echo PASS
