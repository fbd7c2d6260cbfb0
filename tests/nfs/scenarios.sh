#!/bin/bash
# What `ferroflow join` must withstand when every client sees the shared directory through caches of its own. Run by
# guest.sh; prints a line per scenario and ends with 0 if all went as they should.
set -u
logs=$FF_WORK/logs
mkdir -p "$logs"
failures=0

# Becomes a command with a client's host name.
named='hostname "$0"; exec "$@"'

# start NAME CLIENT RUN JOBS JOB [OPTION...] [-- PROGRAM...]: joins in the background; `ended NAME` waits for its code.
declare -A pids
start() {
    local name=$1 client=$2 run=$3 jobs=$4 job=$5
    shift 5
    : >"$logs/$name"
    nsenter --net=/run/netns/c$client unshare --uts sh -c "$named" "c$client" "$FF_BINARY" join --rendezvous "file:///mnt/c$client/$run" --jobs "$jobs" --job "$job" \
        "$@" >>"$logs/$name" 2>&1 </dev/null &
    pids[$name]=$!
}

# The code goes to a variable: another shell could not wait for this one's processes.
ended() {
    wait "${pids[$1]}" 2>/dev/null
    code=$?
}

killed() {
    kill -KILL "${pids[$1]}"
    ended "$1"
}

until_said() {
    for _ in $(seq 600); do
        grep -q "$2" "$logs/$1" && return 0
        sleep 0.1
    done
    wrong "$1 does not say: $2"
}

wrong() {
    echo "  WRONG: $*"
    failures=$((failures + 1))
}

expect() {
    local name=$1 expected=$2
    ended "$name"
    [ "$code" = "$expected" ] || { wrong "$name ended with $code, expected $expected"; tail -n 5 "$logs/$name"; }
}

says() { grep -q "$2" "$logs/$1" || { wrong "$1 does not say: $2"; tail -n 5 "$logs/$1"; }; }

scenario() { echo "$1"; }

say='echo $TF_CONFIG'

scenario "tasks of two clients become one cluster, and the last one cleans up"
began=$(date +%s%N)
start ps 1 meet ps:1,worker:2 ps
start w0 1 meet ps:1,worker:2 worker --task 0 -- sh -c "$say"
start w1 2 meet ps:1,worker:2 worker --task 1 -- sh -c "$say"
for task in w0 w1 ps; do expect $task 0; done
echo "  from the start to the end of all: $((($(date +%s%N) - began) / 1000000)) ms"
[ "$(grep -o '"cluster":{[^}]*}' "$logs/w0")" = "$(grep -o '"cluster":{[^}]*}' "$logs/w1")" ] || wrong "the clusters differ"
says w0 '10.79.0.1:[0-9]*","10.79.0.2:'
[ ! -e /mnt/export/meet ] || wrong "the directory is still there: $(ls -a /mnt/export/meet)"

scenario "records of a run that was killed are waited out"
start ps 1 stale ps:1,worker:1 ps
start w0 2 stale ps:1,worker:1 worker -- sleep 100
until_said w0 "cluster is complete"
killed ps
killed w0
printf '{"version":1,' >/mnt/export/stale/m.ps.0.1
start ps 2 stale ps:1,worker:1 ps
start w0 1 stale ps:1,worker:1 worker -- sh -c "$say"
for task in w0 ps; do expect $task 0; done
says ps "generation 2"

scenario "a client that looked for the others before they came finds them"
start w0 1 early ps:1,worker:2 worker --task 0 -- sh -c "$say"
until_said w0 "ps:0 (absent)"
start w1 2 early ps:1,worker:2 worker --task 1 -- sh -c "$say"
start ps 2 early ps:1,worker:2 ps
for task in w0 w1 ps; do expect $task 0; done

scenario "a missing task is named"
start w0 1 missing ps:1,worker:2 worker --timeout 2 -- true
start other 2 missing ps:1,worker:2 worker --task 1 --timeout 2 -- true
expect other 75
says other "ps:0 (absent)"
ended w0

scenario "of two starts of a task on two clients, the second is refused"
start first 1 twice ps:1,worker:1 ps
until_said first "is published"
start second 2 twice ps:1,worker:1 ps --task 0
expect second 5
says second "ps:0 is alive at 10.79.0.1:"
start w0 1 twice ps:1,worker:1 worker -- sh -c "$say"
for task in w0 first; do expect $task 0; done

scenario "a task that was killed comes back on another client"
start ps 1 move ps:1,worker:1 ps --fail-fast=false
start w0 1 move ps:1,worker:1 worker --fail-fast=false -- sleep 100
until_said w0 "cluster is complete"
killed w0
start w0 2 move ps:1,worker:1 worker --fail-fast=false -- sh -c "$say"
for task in w0 ps; do expect $task 0; done
says ps "worker:0 moved from"

scenario "ten tasks of two clients, three runs at the same time"
for run in a b c; do
    for task in $(seq 8); do start $run$task $((task % 2 + 1)) many-$run ps:2,worker:8 worker -- sh -c "$say"; done
    start ${run}p1 1 many-$run ps:2,worker:8 ps
    start ${run}p2 2 many-$run ps:2,worker:8 ps
done
for run in a b c; do
    for task in $(seq 8) p1 p2; do expect $run$task 0; done
    clusters=$(cat "$logs/$run"[1-8] | grep -o '"cluster":{[^}]*}' | sort -u | wc -l)
    [ "$clusters" = 1 ] || wrong "run $run has $clusters clusters"
done

scenario "a directory that vanishes, is read-only or full is told"
start ps 1 vanish ps:1,worker:1 ps
until_said ps "is published"
rm -r /mnt/export/vanish
expect ps 1
says ps "is gone"
mkdir -p /mnt/fixed /mnt/full
mount -t tmpfs -o ro tmpfs /mnt/fixed
mount -t tmpfs -o size=4k tmpfs /mnt/full
dd if=/dev/zero of=/mnt/full/ballast bs=4k count=1 2>/dev/null
for place in fixed full; do
    "$FF_BINARY" join --rendezvous file:///mnt/$place/job --jobs ps:1 --job ps >"$logs/$place" 2>&1 </dev/null
    code=$?
    [ $code = 1 ] || wrong "$place ended with $code"
done
says fixed "Read-only file system"
says full "No space left on device"

echo "$failures went wrong"
[ $failures = 0 ]
