#!/bin/bash
# The first process of a User Mode Linux kernel whose root is the host's file system: an NFS server on a tmpfs, and one
# network, host name and mount of it per client, so that every client has caches of its own. Then the scenarios run.
#
# The kernel's command line gives: FF_WORK (a directory for what comes out), FF_REPO, FF_BINARY, FF_NFS (the version of the
# protocol), FF_MODULES (a root below which the kernel's modules are). Started by `cargo xtask nfs`.
export PATH=$FF_REPO/tests/nfs:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec 2>>"$FF_WORK/log"
set -x
mount -t proc proc /proc
mount -t sysfs sysfs /sys
# What daemons write must not reach the host's files.
for directory in /run /var/lib/nfs /mnt; do mount -t tmpfs tmpfs $directory; done
mkdir -p /run/netns /run/rpc_pipefs /var/lib/nfs/{sm,v4recovery,rpc_pipefs} /mnt/export
touch /var/lib/nfs/{etab,rmtab}
for module in sunrpc lockd nfs nfsv3 nfsv4 nfsd veth bridge; do modprobe -d "$FF_MODULES" $module; done
mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd

hostname server
ip link set lo up
ip link add lan type bridge
ip addr add 10.79.0.254/24 dev lan
ip link set lan up
mount -t tmpfs tmpfs /mnt/export
chmod 1777 /mnt/export
rpcbind
# Nobody has locks to claim back, so that the server need not wait for them for long.
echo 3 >/proc/fs/nfsd/nfsv4leasetime
echo 3 >/proc/fs/nfsd/nfsv4gracetime
exportfs -o rw,sync,no_root_squash,no_subtree_check,insecure,fsid=0 10.79.0.0/24:/mnt/export
rpc.mountd
rpc.nfsd 4
for _ in $(seq 50); do
    [ "$(cat /proc/fs/nfsd/threads)" = 4 ] && [ -n "$(cat /proc/fs/nfsd/exports 2>/dev/null || true)" ] && break
    sleep 0.1
done
sleep 3

case $FF_NFS in
3) source=10.79.0.254:/mnt/export options=vers=3,nolock,tcp ;;
*) source=10.79.0.254:/ options=vers=$FF_NFS ;;
esac
mounted=yes
for client in 1 2; do
    touch /run/netns/c$client
    unshare --net=/run/netns/c$client true
    ip link add v$client type veth peer name eth0 netns /run/netns/c$client
    ip link set v$client master lan up
    nsenter --net=/run/netns/c$client ip addr add 10.79.0.$client/24 dev eth0
    nsenter --net=/run/netns/c$client ip link set eth0 up
    nsenter --net=/run/netns/c$client ip link set lo up
    mkdir -p /mnt/c$client
    nsenter --net=/run/netns/c$client mount -t nfs -o $options,nosharecache $source /mnt/c$client || mounted=no
done
if [ $mounted = yes ]; then
    bash "$FF_REPO/tests/nfs/scenarios.sh" </dev/null >"$FF_WORK/out" 2>&1
    echo $? >"$FF_WORK/code"
fi
sync
echo o >/proc/sysrq-trigger
sleep 10
