#!/usr/bin/env bash
# The comparison of docs/notes/comparison.md. Starts its two benches, or continues them, until they end or are stopped.
#   run.sh STATE KERNELBENCH     STATE gets the stores, prompts, replies, and the queue for `stark worker STATE/queue`
set -eu
state=$(realpath -m "$1") kernelbench=$(realpath "$2") here=$(dirname "$(realpath "$0")")
deck=$here/../../examples/deck level3=$kernelbench/KernelBench/level3
mkdir -p "$state"/{eight,three,queue,mail}
for each in causal_conv_state group_norm_silu_conv int8_linear paged_int8_attention routed_experts; do
  cp "$deck/$each.py" "$state/eight"
done
for each in 21_EfficientNetMBConv 31_VisionAttention 50_ReLUSelfAttention; do
  cp "$level3/$each.py" "$state/eight/level3_$each.py"
done
cp "$state"/eight/{group_norm_silu_conv,int8_linear,level3_31_VisionAttention}.py "$state/three"

bench() {  # NAME FOLDER STRATEGIES
  local store=sqlite:///$state/$1.db how
  if [ -e "$state/$1.db" ]; then how=(resume "$1"); else
    how=(run "$2" --name "$1" --strategy "$3" --attempts 12 --language triton
         --executor "folder:$state/queue" --model "exec[claude]:$here/ask.sh $state/mail")
  fi
  stark bench "${how[@]}" --runs 40 --store "$store" </dev/null >>"$state/$1.log" 2>&1
}
bench comparison "$state/eight" stark,stark:best-first,reflexion,sampling &
bench comparison-parts "$state/three" search-only,team-only &
wait
