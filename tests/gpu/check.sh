#!/bin/sh
# What only a GPU can show, on one GPU: sh tests/gpu/check.sh [python] [tests|runs]
# Tests and runs are at most five minutes and ten; without a word, both. Prints a short table; exits with 0 when every
# line of it says "ok". Nothing is skipped quietly.
python=${1:-python} part=${2:-both}
cd "$(dirname "$0")/../.." || exit 2
place=$(mktemp -d) || exit 2
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1
table="$place/table"
bad=0

check() { # check NAME LIMIT_S COMMAND...
    name=$1 limit=$2
    shift 2
    began=$(date +%s)
    timeout "$limit" "$@" >"$place/$name.out" 2>&1
    code=$?
    if [ $code -eq 0 ]; then verdict=ok; else verdict="FAILED ($code)" bad=1; tail -n 30 "$place/$name.out"; fi
    printf '%-28s %4d s  %s  %s\n' "$name" $(($(date +%s) - began)) "$verdict" \
        "$(grep -E '^(finished: |updates  |[0-9]+ passed|=+ .*passed)' "$place/$name.out" | tail -n 1)" >>"$table"
}

train() { # train NAME WORDS...
    name=$1
    shift
    check "$name" 70 "$python" train.py task=cartpole-swingup/mujoco.fastsac num_envs=64 \
        algo.agent.learning_starts=2048 algo.agent.buffer_size=100000 algo.agent.batch_size=512 \
        algo.trainer.num_learning_iterations=300 eval.interval=0 logging.console=plain logging.tensorboard=false \
        run_dir="$place/$name-run" "$@"
}

async=algo.trainer.async_options
cli='import sys; from motrix_rl.cli.main import entry; sys.exit(entry())'
"$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' || { echo "no CUDA device here"; exit 2; }
if [ "$part" != runs ]; then
    check ipc-probe 60 "$python" -m transport.probe cuda:0
    check gpu-tests 300 "$python" -m pytest tests/gpu -m gpu -q -p no:cacheprovider
fi
if [ "$part" != tests ]; then
    train ipc-both $async.learner_devices=cuda:0 $async.collector_inference_device=cuda:0 \
        $async.transition_ipc=on $async.weight_ipc=on
    train host-rings $async.learner_devices=cuda:0 $async.transition_ipc=off $async.weight_ipc=off
    train cuda-graphs $async.learner_devices=cuda:0 algo.agent.cuda_graphs=true
    train two-learners-gloo $async.num_learners=2 $async.num_collectors=2 $async.learner_devices=cuda:0,cuda:0 \
        algo.agent.cuda_graphs=true
    for graphs in false true; do
        check "updates-graphs-$graphs" 100 "$python" -c "$cli" bench learner task=humanoid/mujoco.fastsac --seconds 2 \
            --rounds 3 $async.learner_devices=cuda:0 algo.agent.batch_size=8192 algo.agent.cuda_graphs=$graphs
    done
    check bench-ring 60 "$python" -c "$cli" bench ring --seconds 1
fi

echo
nvidia-smi --query-gpu=name,memory.used --format=csv,noheader 2>/dev/null
cat "$table"
left=$(find /dev/shm -maxdepth 1 -name 'torch_*' 2>/dev/null | wc -l)
echo "files of torch left in /dev/shm: $left"
exit $bad
