#!/usr/bin/env bash
# A real Slurm of one node runs the shipped scripts/slurm/train.sbatch:
#
#   1. a whole run of two trainers and two generators as four tasks of a job, Redis started by the script;
#   2. a second run, cancelled in the middle by scancel; resumed by another job, whose first trainer is
#      killed, which must end that job; resumed by a third, one of whose generators is killed, which must
#      not end it.
#
# Both folders are audited: no prompt lost, none trained on twice. Needs root (Slurm's daemons start
# tasks for others), Debian's slurm-wlm, munge and redis-server (installed where apt-get is there), and
# about five minutes. Daemons, configuration and jobs live in a folder of their own below $TMPDIR; all of
# it is stopped and removed at the end, whatever happens. KEEP=1 leaves the folder.
#
#   scripts/test/slurm.sh              builds scalerl first
#   SCALERL=PROGRAM scripts/test/slurm.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD

fail() {
    echo "test-slurm: $*" >&2
    exit 1
}

[ "$(id -u)" = 0 ] || fail "needs root: slurmd starts tasks with setuid"
missing() {
    for program in munged slurmctld slurmd sbatch scontrol redis-server python3; do
        command -v "$program" >/dev/null || echo "$program"
    done
}
if [ -n "$(missing)" ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq slurm-wlm munge redis-server python3
fi
[ -z "$(missing)" ] || fail "needs $(missing | tr '\n' ' ')(Debian: apt-get install slurm-wlm munge redis-server)"

if [ -z "${SCALERL:-}" ]; then
    cargo build --locked --package scalerl
    SCALERL=$root/target/debug/scalerl
fi
export SCALERL
[ -x "$SCALERL" ] || fail "$SCALERL is no program"

work=$(mktemp -d)
chmod 755 "$work"
daemons=()
stop_everything() {
    local status=$?
    trap - EXIT
    scancel --user=root >/dev/null 2>&1 || true
    for _ in $(seq 300); do
        [ -n "$(squeue --noheader 2>/dev/null)" ] || break
        sleep 0.1
    done
    # In the opposite order of their start; each is waited for.
    for ((index = ${#daemons[@]} - 1; index >= 0; index--)); do
        kill "${daemons[index]}" 2>/dev/null || true
        wait "${daemons[index]}" 2>/dev/null || true
    done
    if [ "$status" != 0 ]; then
        tail -n 30 "$work"/*.log "$work"/scalerl-*.out >&2 2>/dev/null || true
    fi
    [ -n "${KEEP:-}" ] && echo "kept: $work" || rm -rf "$work"
    exit "$status"
}
trap stop_everything EXIT
trap 'exit 130' INT TERM

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# --- the cluster: one node that says it has more than it has --------------------------------------
host=$(hostname -s)
getent hosts "$host" >/dev/null || fail "the name $host must resolve (a line in /etc/hosts)"
export SLURM_CONF=$work/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$host
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
MpiDefault=none
ReturnToService=2
KillWait=30
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=$host CPUs=64 RealMemory=1000 Gres=gpu:8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=YES:8 State=UP
CONF
# The shipped script asks for a GPU for each task. These exist on paper only: the recipe says CPU.
touch "$work"/gpu{0..7}
echo "NodeName=$host Name=gpu File=$work/gpu[0-7]" >"$work/gres.conf"
mkdir "$work/state" "$work/spool" "$work/runs"

head -c 1024 /dev/urandom >"$work/munge.key"
chmod 600 "$work/munge.key"
start() {
    local name=$1
    shift
    "$@" >>"$work/$name.log" 2>&1 &
    daemons+=($!)
}
start munged munged --foreground --force --num-threads=2 --socket="$work/munge.socket" --key-file="$work/munge.key" \
    --pid-file="$work/munge.pid" --seed-file="$work/munge.seed"
for _ in $(seq 100); do [ -S "$work/munge.socket" ] && break || sleep 0.1; done
start slurmctld slurmctld -D -f "$SLURM_CONF"
start slurmd slurmd -D -f "$SLURM_CONF" -N "$host"
for _ in $(seq 300); do
    [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && break
    sleep 0.2
done
[ "$(sinfo --noheader --format=%T)" = idle ] || fail "the node does not come up"
echo "$(slurmctld -V): one node, $(sinfo --noheader --format='%c CPUs, %G')"

# --- jobs ----------------------------------------------------------------------------------------
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
unset SCALERL_REDIS || true
cd "$work"
submit() {
    sbatch --parsable --ntasks=4 "$root/scripts/slurm/train.sbatch" "$@"
}
# The last word of Slurm about a job, once it has ended; it remembers jobs for five minutes.
state_of() {
    scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p'
}
wait_for_end() {
    local job=$1
    for _ in $(seq 1200); do
        case $(state_of "$job") in
        COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL)
            # Its processes may need a moment longer.
            [ -n "$(squeue --noheader)" ] || return 0
            ;;
        esac
        sleep 0.5
    done
    fail "job $job does not end"
}
# Waits until the run in runs/broken has taken so many steps more.
wait_for_steps() {
    local job=$1 steps
    steps=$(($(steps_of broken) + $2))
    for _ in $(seq 600); do
        [ "$(steps_of broken)" -lt "$steps" ] || return 0
        case $(state_of "$job") in FAILED | COMPLETED) fail "job $job ended as $(state_of "$job") too early" ;; esac
        sleep 0.1
    done
    fail "job $job takes too long for $steps steps"
}
steps_of() {
    cat "runs/$1/events.jsonl" 2>/dev/null | grep -c '"type":"step"' || true
}
last_event() {
    tail -n 1 "runs/$1/events.jsonl" | python3 -c 'import json, sys; e = json.load(sys.stdin); print(e["type"], e.get("reason", ""))'
}
# Processes that work in the folder, but for this script and the daemons.
pids_in_folder() {
    local link pid
    for link in /proc/[0-9]*/cwd; do
        pid=${link#/proc/}
        pid=${pid%/cwd}
        [[ $(readlink "$link" 2>/dev/null) == "$work"* ]] || continue
        [[ " $$ $BASHPID $PPID ${daemons[*]} " == *" $pid "* ]] || echo "$pid"
    done
}
# The scalerl of the job that is a task's own.
pid_of_task() {
    local pid
    for pid in $(pids_in_folder); do
        [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$SCALERL")" ] || continue
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "SLURM_PROCID=$1" && echo "$pid" && return
    done
    fail "there is no task $1"
}
recipe=$root/scripts/test/slurm.toml
# 1216 problems, 32 of them held out.
prompts=1184

job=$(submit "$recipe" --device cpu --run runs/whole --set budget.steps=12)
echo "job $job: a whole run"
wait_for_end "$job"
[ "$(state_of "$job")" = COMPLETED ] || fail "job $job ended as $(state_of "$job")"
[ "$(steps_of whole)" = 12 ] || fail "12 steps were asked for, $(steps_of whole) were taken"
python3 "$root/scripts/test/audit.py" runs/whole "$prompts"

job=$(submit "$recipe" --device cpu --run runs/broken --set budget.steps=120)
echo "job $job: to be cancelled"
wait_for_steps "$job" 7
scancel "$job"
wait_for_end "$job"
echo "job $job: $(state_of "$job") after $(steps_of broken) steps; the journal ends with: $(last_event broken)"
[ "$(last_event broken)" = "stopped asked" ] || fail "the run did not end in order"
python3 "$root/scripts/test/audit.py" runs/broken "$prompts"

job=$(submit --device cpu --resume runs/broken)
echo "job $job: resumes it, to be killed"
wait_for_steps "$job" 15
kill -KILL "$(pid_of_task 0)"
wait_for_end "$job"
echo "job $job: $(state_of "$job") after $(steps_of broken) steps; the journal ends with: $(last_event broken)"
[ "$(state_of "$job")" = FAILED ] || fail "job $job ended as $(state_of "$job")"

job=$(submit --device cpu --resume runs/broken)
echo "job $job: resumes that, and loses a generator"
wait_for_steps "$job" 15
kill -KILL "$(pid_of_task 3)"
wait_for_end "$job"
echo "job $job: $(state_of "$job"); the journal ends with: $(last_event broken)"
[ "$(state_of "$job")" = COMPLETED ] || fail "job $job ended as $(state_of "$job")"
[ "$(last_event broken)" = "stopped steps" ] || fail "the journal ends with: $(last_event broken)"
grep -q '"to":"dead"' runs/broken/events.jsonl || fail "the journal does not know that a generator died"
python3 "$root/scripts/test/audit.py" runs/broken "$prompts"

for _ in $(seq 50); do [ -z "$(pids_in_folder)" ] && break || sleep 0.2; done
[ -z "$(pids_in_folder)" ] || fail "jobs have left processes: $(ps -o pid=,args= -p $(pids_in_folder))"
echo "test-slurm: passed"
