# training_configs.sh - configurations of DeepSpeed, accelerate, torchtitan and TrainingArguments as plans, and plans as theirs.
# Whether every key is accounted for is asked in tests/check_training_config.c.
. "$top_srcdir/tests/cli/lib.sh"

corpus=$top_srcdir/tests/fuzz/corpus/training_config

# The plan of a file of the corpus is in plan.json, what became of the file in out.
import() {
  run import plan "$corpus/$1" -o plan.json
  [ "$status" -eq 0 ] && [ ! -s err ]
}
# plan_has SECTION.KEY=VALUE...: the imported plan has the keys.
plan_has() {
  tr -d ' \t\n' <plan.json >flat
  for expected; do
    section=${expected%%.*} key=${expected#*.} value=${expected#*=}
    case $expected in
      strategy=* | compile=* | loop=*) grep -qF "\"${expected%%=*}\":\"$value\"" flat || return 1 ;;
      *) sed "s/.*\"$section\":{//" flat | grep -qE "\"${key%%=*}\":\"?$value\"?[,}]" || return 1 ;;
    esac
  done
}
# says TEXT...: the note has them all.
says() {
  for expected; do grep -qF -e "$expected" out || return 1; done
}
# refuses_text NAME TEXT: standard input is refused as a plan, with the text in the line.
refuses_text() {
  cat >refused
  refuses "$1" "$2" import plan refused
}

# ---- accelerate ----

ok "FSDP1 as accelerate wrote it first" import accelerate_fsdp1_numbers
ok "strategy 2 is SHARD_GRAD_OP" plan_has strategy=fsdp1 fsdp.sharding_strategy=SHARD_GRAD_OP fsdp.backward_prefetch=pre mesh.shard=2
ok "fp16 computes and reduces in fp16 over fp32 parameters" plan_has precision.parameters=fp32 precision.compute=fp16 precision.reduce=fp16
ok "what no policy by size needs is said to be ignored" says "fsdp_config.fsdp_min_num_params: 2000 (line 9) - of SIZE_BASED_WRAP only"
ok "FSDP1 by names" import accelerate_fsdp1_names
ok "offload, checkpoints and prefetching are honoured" plan_has fsdp.cpu_offload=true activation_checkpointing.policy=full \
  fsdp.backward_prefetch=post fsdp.forward_prefetch=1 fsdp.use_orig_params=false
ok "hybrid sharding over two machines" import accelerate_fsdp1_hybrid
ok "shards over the ranks of a machine" plan_has fsdp.sharding_strategy=HYBRID_SHARD mesh.shard=8 mesh.replicate=2 fsdp.blocks_per_group=0
ok "FSDP2" import accelerate_fsdp2
ok "with a mesh of its own" plan_has strategy=fsdp2 fsdp.reshard_after_forward=false mesh.replicate=2 mesh.shard=4 \
  precision.reduce=bf16 precision.output=bf16 compile=per_block
ok "says that a key of FSDP1 has no effect" says "fsdp_config.fsdp_use_orig_params: true (line 13) - FSDP1's"
ok "plain multi-GPU" import accelerate_plain
ok "is DDP under autocast" plan_has strategy=ddp mesh.replicate=4 precision.autocast=true precision.parameters=fp32
ok "one process" import accelerate_one
ok "has no strategy; fp16 is the old name of mixed_precision" plan_has strategy=none precision.compute=fp16
ok "DeepSpeed inside of accelerate" import accelerate_deepspeed
ok "is ZeRO-3 with offload over all ranks" plan_has strategy=zero3 mesh.shard=16 accumulation.steps=8 precision.parameters=bf16 deepspeed.zero_init=true
ok "JSON of accelerate" import accelerate_json
printf 'distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\ndeepspeed_config:\n  deepspeed_config_file: zero.json\n  zero3_init_flag: false\n' >with_file.yaml
echo '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 3}' >zero.json
run import plan with_file.yaml -o plan.json
ok "deepspeed_config_file is followed" plan_has strategy=zero2 mesh.shard=4 batch.micro_batch=3 precision.parameters=bf16
ok "and its keys are in the note" says "zero_optimization.stage: 2 (zero.json, line 1) - strategy = zero2"
mkdir beside && cp with_file.yaml zero.json beside && rm zero.json
answers "it is looked for beside the file too" 0 import plan beside/with_file.yaml -o plan.json
refuses "a file that is not there" "with_file.yaml: line 5: key 'deepspeed_config.deepspeed_config_file': " import plan with_file.yaml

refuses_text "FSDP and DeepSpeed contradict each other" "line 3: key 'deepspeed_config': contradicts distributed_type, which is FSDP" <<'EOF'
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
deepspeed_config: {zero_stage: 2}
EOF
refuses_text "a key of FSDP2 in FSDP1" "true and false are FSDP2's, but fsdp_version is 1" <<'EOF'
distributed_type: FSDP
fsdp_config:
  fsdp_version: 1
  fsdp_reshard_after_forward: true
EOF
refuses_text "a strategy of FSDP1 in FSDP2" "key 'fsdp_config.fsdp_sharding_strategy': 'SHARD_GRAD_OP' is FSDP1's, but fsdp_version is 2" <<'EOF'
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_sharding_strategy: SHARD_GRAD_OP
EOF
refuses_text "two strategies" "line 4: key 'fsdp_config.fsdp_reshard_after_forward': contradicts key 'fsdp_config.sharding_strategy'" <<'EOF'
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: 1
  fsdp_reshard_after_forward: SHARD_GRAD_OP
EOF
refuses_text "a strategy that does not exist" "'6' is not one of FULL_SHARD" <<'EOF'
distributed_type: FSDP
fsdp_config: {fsdp_sharding_strategy: 6}
EOF
refuses_text "groups by size" "follows from their sizes: not supported" <<'EOF'
distributed_type: FSDP
fsdp_config: {fsdp_auto_wrap_policy: SIZE_BASED_WRAP, fsdp_min_num_params: 100000000}
EOF
refuses_text "a misspelt key" "line 2: key 'fsdp_config.fsdp_ofload_params': unknown; did you mean 'fsdp_config.fsdp_offload_params'?" <<'EOF'
distributed_type: FSDP
fsdp_config: {fsdp_ofload_params: true}
EOF
refuses_text "processes that do not divide" "7 processes do not divide over 2 machines" <<'EOF'
distributed_type: MULTI_GPU
num_processes: 7
num_machines: 2
EOF
refuses_text "more GPUs than processes" "3 GPUs for 2 processes" <<'EOF'
distributed_type: MULTI_GPU
num_processes: 2
gpu_ids: 0,1,2
EOF
refuses_text "a DeepSpeed file and settings beside it" "contradicts 'deepspeed_config_file'" <<'EOF'
distributed_type: DEEPSPEED
deepspeed_config: {deepspeed_config_file: zero.json, zero_stage: 3}
EOF
refuses_text "Megatron-LM" "'MEGATRON_LM' is not supported" <<'EOF'
distributed_type: MEGATRON_LM
EOF
refuses_text "8-bit floating point" "'fp8' is not supported" <<'EOF'
distributed_type: MULTI_GPU
mixed_precision: fp8
EOF
refuses_text "no configuration of any kind" "no key of a DeepSpeed, accelerate, torchtitan or TrainingArguments" <<'EOF'
version: "3"
services: {}
EOF
refuses_text "several documents" "a second document begins here" <"$corpus/yaml_two_documents"
refuses_text "anchors" "anchors and aliases" <"$corpus/yaml_anchor"
refuses_text "tabs" "YAML is indented with spaces" <"$corpus/yaml_tab"
refuses_text "a key twice" "line 2: key 'num_processes' stands twice in its object" <"$corpus/yaml_twice"

# ---- DeepSpeed ----

ok "DeepSpeed's file for the Trainer" import deepspeed_auto
ok "what auto stands for is ours where it follows from the network" plan_has strategy=zero3 deepspeed.reduce_bucket_size=auto \
  deepspeed.sub_group_size=1000000000 deepspeed.stage3_param_persistence_threshold=auto
ok "and said where the script decides" says "bf16.enabled: auto (line 4) - precision.parameters = bf16 (auto: the training script says; taken to be on)"
ok "stage 2 with offload, in an older form" import deepspeed_offload
ok "ranks follow from the sizes of batches" plan_has strategy=zero2 mesh.shard=8 batch.micro_batch=4 accumulation.steps=8 \
  deepspeed.cpu_offload=true deepspeed.reduce_bucket_size=200000000 deepspeed.stage3_prefetch_bucket_size=50000000 precision.parameters=fp16
ok "a key that nobody knows is named" says "my_launcher_note: kept by our scripts (line 25) - not known to highwater"
ok "hardly anything is given" import deepspeed_small
ok "true is stage 1, missing precision fp32" plan_has strategy=zero1 precision.parameters=fp32 batch.micro_batch=2
ok "no ZeRO, and no clipping" import deepspeed_sgd
ok "SGD" plan_has strategy=zero0 optimizer.name=sgd optimizer.clip_grad_norm=0 mesh.shard=8 batch.micro_batch=2
run import plan "$corpus/deepspeed_small" --ranks 4 -o plan.json
ok "--ranks says how many there are" plan_has mesh.shard=4
refuses_text "batch sizes that contradict each other" \
  "line 1: key 'train_batch_size': contradicts the others: 100 is not 4 (train_micro_batch_size_per_gpu) x 3 (gradient_accumulation_steps) x 8 ranks = 96" <<'EOF'
{"train_batch_size": 100, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}
EOF
refuses_text "bf16 and fp16" "only one of them can be true" <<'EOF'
{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}, "fp16": {"enabled": true}}
EOF
refuses_text "an optimizer with other states" "'OneBitAdam': its states are not simulated" <<'EOF'
{"zero_optimization": {"stage": 1}, "optimizer": {"type": "OneBitAdam"}}
EOF
refuses_text "a misspelt option of ZeRO" "unknown; did you mean 'reduce_bucket_size'?" <<'EOF'
{"zero_optimization": {"stage": 2, "reduce_bucket_sise": 5e8}}
EOF
refuses_text "a misspelt section" "line 1: key 'zero_optimisation': unknown; did you mean 'zero_optimization'?" <<'EOF'
{"train_batch_size": 8, "zero_optimisation": {"stage": 2}}
EOF
refuses_text "comments are not JSON" "line 2: " <<'EOF'
{
  // stage 2 is enough
  "zero_optimization": {"stage": 2}
}
EOF
refuses_text "a stage that does not exist" "key 'zero_optimization.stage': 4 is not a whole number in 0..3" <<'EOF'
{"zero_optimization": {"stage": 4}}
EOF

# ---- torchtitan ----

ok "torchtitan" import torchtitan_llama
ok "selective checkpoints by op, everything resharded" plan_has strategy=fsdp2 activation_checkpointing.policy=selective_op \
  activation_checkpointing.early_stop=false fsdp.reshard_after_forward=true fsdp.reshard_head=true fsdp.head=own compile=per_block \
  optimizer.implementation=foreach
ok "micro-batches follow from the global batch" plan_has batch.micro_batch=2 accumulation.steps=4 batch.sequence_length=8192
ok "torchtitan in its first year" import torchtitan_old
ok "every third block" plan_has activation_checkpointing.policy=every_n activation_checkpointing.every=3 mesh.shard=16 batch.micro_batch=4
ok "replicas that share nothing" import torchtitan_replicas
ok "are DDP under autocast" plan_has strategy=ddp mesh.replicate=2 precision.autocast=true
ok "a compiled loss alone compiles no block" says 'compile.components: ["loss"]'
ok "a mixture of experts" import torchtitan_deepseek
ok "is sharded, recomputes blocks to their end, and accumulates" plan_has strategy=fsdp2 mesh.shard=32 batch.micro_batch=4 accumulation.steps=2 \
  activation_checkpointing.policy=selective_op activation_checkpointing.early_stop=false
ok "no key of it is unknown" sh -c '! grep -q "not known to highwater" out'
ok "with torchtitan's default named" says "activation_checkpointing.early_stop: false - torchtitan's default"
ok "and the experts' load" says "debug.moe_force_load_balance: true (line 71) - experts have the same load"
refuses_text "other products that are recomputed" "line 3: key 'activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns': only moe.router.gate" <<'EOF'
[activation_checkpoint]
mode = "selective"
per_op_sac_force_recompute_mm_shapes_by_fqns = ["feed_forward.w1"]
EOF
for degree in tensor pipeline context; do
  printf '[parallelism]\n%s_parallel_degree = 2\n' $degree >refused
  refuses "$degree parallelism" "line 2: key 'parallelism.${degree}_parallel_degree': $degree parallelism is not supported" import plan refused
done
refuses_text "float8" "converters of the model (float8): not supported" <<'EOF'
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
EOF
refuses_text "a global batch that does not fit" "50 is no multiple of 4 (training.local_batch_size) x 8 ranks" <<'EOF'
[training]
local_batch_size = 4
global_batch_size = 50
EOF
refuses_text "a key twice in TOML" "line 3: " <"$corpus/toml_twice"

# ---- accelerate, as release 1.15 trains ----

cat >fsdp2.yaml <<'EOF'
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config: {fsdp_version: 2, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_activation_checkpointing: true}
EOF
run import plan fsdp2.yaml -o plan.json
ok "FSDP2 has groups for embedding and head, checkpoints around its modules, and no autocast" plan_has strategy=fsdp2 fsdp.embedding=untied \
  fsdp.head=own fsdp.reshard_root=false activation_checkpointing.around=fsdp precision.output=bf16 precision.reduce=bf16 loop=accelerate
sed 's/fsdp_version: 2/fsdp_version: 1/' fsdp2.yaml >fsdp1.yaml
run import plan fsdp1.yaml -o plan.json
ok "FSDP1 is under autocast and casts buffers, with checkpoints inside of its modules" plan_has strategy=fsdp1 precision.autocast=true \
  precision.output=fp32 fsdp.cast_buffers=true activation_checkpointing.around=module activation_checkpointing.wrapper=true
refuses_text "checkpoints in the host's memory" "fsdp_activation_checkpointing_offload': activations in the host's memory: not supported" <<'EOF'
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_activation_checkpointing: true, fsdp_activation_checkpointing_offload: true}
EOF
printf 'distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 2\ndynamo_mode: default\n' >ddp.yaml
run import plan ddp.yaml -o plan.json
ok "DDP's own first bucket, and a gradient scaler" plan_has strategy=ddp ddp.first_bucket_mb=1 precision.compute=fp16 precision.grad_scaler=true
ok "which the note says" prints "accelerate scales losses in fp16"
ok "a key of the compiler is named" prints "dynamo_mode: default (line 4) - of the compiler"

# ---- TrainingArguments ----

ok "TrainingArguments with FSDP" import arguments_fsdp
ok "full_shard, offload and a reentrant checkpoint" plan_has strategy=fsdp1 fsdp.cpu_offload=true batch.micro_batch=2 batch.sequence_length=4096 \
  accumulation.sync_every_step=false activation_checkpointing.early_stop=false optimizer.implementation=foreach optimizer.clip_grad_norm=0.5 \
  optimizer.zero_grad=end
ok "fsdp true is FSDP2" import arguments_fsdp2
ok "with its checkpoints" plan_has strategy=fsdp2 activation_checkpointing.policy=full compile=per_block
ok "TrainingArguments with DeepSpeed inside" import arguments_deepspeed
ok "whose auto it fills" plan_has strategy=zero2 batch.micro_batch=4 accumulation.steps=2 precision.parameters=bf16 deepspeed.overlap_comm=true \
  optimizer.implementation=fused
echo '{"output_dir": "o", "per_device_train_batch_size": 1, "bf16": true, "deepspeed": {"zero_optimization": {"stage": 3}}}' >arguments_zero3
run import plan arguments_zero3 -o plan.json
ok "under the Trainer a model of stage 3 is sharded while it is built" plan_has strategy=zero3 deepspeed.zero_init=true
echo '{"output_dir": "o", "per_device_train_batch_size": 1, "average_tokens_across_devices": false}' >arguments_loop
run import plan arguments_loop -o plan.json
ok "the Trainer's own loop, whose items each rank may count for itself" plan_has loop=trainer trainer.average_tokens=false
echo '{"output_dir": "o", "fp16": true, "fsdp": "full_shard", "per_device_train_batch_size": 1}' >arguments_fp16
run import plan arguments_fp16 -o plan.json
refuses "what PyTorch fails at: clipping before a fused optimizer under ShardedGradScaler" "key 'precision.grad_scaler': PyTorch's fused optimizers fail" \
  run tiny --plan plan.json --set batch.sequence_length=64
ok "a recipe in YAML" import arguments_yaml
ok "DDP" plan_has strategy=ddp ddp.bucket_cap_mb=50 batch.sequence_length=2048
refuses_text "fsdp and deepspeed" "key 'deepspeed': contradicts 'fsdp'" <<'EOF'
{"output_dir": "o", "fsdp": "full_shard", "deepspeed": {"zero_optimization": {"stage": 2}}}
EOF
refuses_text "bf16 and fp16 in TrainingArguments" "key 'fp16': contradicts 'bf16'" <<'EOF'
{"output_dir": "o", "bf16": true, "fp16": true}
EOF
refuses_text "DeepSpeed's sizes that contradict TrainingArguments'" \
  "key 'deepspeed.train_micro_batch_size_per_gpu': 2 contradicts TrainingArguments, which says 4" <<'EOF'
{"output_dir": "o", "per_device_train_batch_size": 4, "deepspeed": {"train_micro_batch_size_per_gpu": 2}}
EOF
refuses_text "DeepSpeed's dtype that contradicts TrainingArguments'" \
  "key 'deepspeed.bf16.enabled': contradicts TrainingArguments, which says fp32" <<'EOF'
{"output_dir": "o", "per_device_train_batch_size": 4, "deepspeed": {"bf16": {"enabled": true}}}
EOF
refuses_text "two kinds of checkpoints" "contradicts gradient_checkpointing" <<'EOF'
{"output_dir": "o", "gradient_checkpointing": true, "fsdp": "full_shard", "fsdp_config": {"activation_checkpointing": true}}
EOF
refuses_text "an optimizer in 8 bits" "'paged_adamw_8bit': its states are not simulated" <<'EOF'
{"output_dir": "o", "optim": "paged_adamw_8bit"}
EOF
refuses_text "noise on embeddings, however little" "key 'neftune_noise_alpha': noise on embeddings: not supported" <<'EOF'
{"output_dir": "o", "neftune_noise_alpha": 0.5}
EOF
refuses_text "smoothed labels" "key 'label_smoothing_factor': another loss" <<'EOF'
{"output_dir": "o", "label_smoothing_factor": 0.1}
EOF
refuses_text "accumulation that two keys say" "num_steps': say it in gradient_accumulation_steps" <<'EOF'
{"output_dir": "o", "accelerator_config": {"gradient_accumulation_kwargs": {"num_steps": 4}}}
EOF
refuses_text "batches that are split over the ranks" "accelerator_config.split_batches'" <<'EOF'
{"output_dir": "o", "accelerator_config": {"split_batches": true}}
EOF
refuses_text "a file with accelerate's settings" "key 'accelerator_config': names another file" <<'EOF'
{"output_dir": "o", "accelerator_config": "accelerator.json"}
EOF
cat >trainer.json <<'EOF'
{"output_dir": "o", "bf16": true, "gradient_accumulation_steps": 2, "ddp_bucket_cap_mb": 25, "ddp_broadcast_buffers": false,
 "neftune_noise_alpha": 0, "accelerator_config": {"split_batches": false, "gradient_accumulation_kwargs": {"sync_each_batch": true}}}
EOF
run import plan trainer.json -o plan.json
ok "the Trainer's DDP searches for unused parameters, and never sees accelerate's own cap" plan_has strategy=ddp ddp.find_unused_parameters=true \
  ddp.first_bucket_mb=1 ddp.broadcast_buffers=false accumulation.sync_every_step=true precision.autocast=true precision.output=fp32
echo '{"output_dir": "o", "gradient_checkpointing": true, "ddp_bucket_cap_mb": 40}' >trainer.json
run import plan trainer.json -o plan.json
ok "not where blocks are checkpointed" plan_has ddp.find_unused_parameters=false
ok "another cap" plan_has ddp.bucket_cap_mb=40
ok "is the first bucket's too" sh -c '! grep -q first_bucket plan.json'
refuses_text "an unknown word of fsdp" "'full_shrad' is not one of full_shard" <<'EOF'
{"output_dir": "o", "fsdp": "full_shrad auto_wrap"}
EOF

# ---- directly ----

run run tiny --plan "$corpus/accelerate_plain" --set batch.sequence_length=128
ok "run takes such a file" test "$status" -eq 0
ok "and prints the note on standard error" grep -qF "distributed_type: MULTI_GPU (line 2) - strategy = ddp" err
for command in show lower explain; do
  run $command tiny --plan "$corpus/torchtitan_old" --set mesh.shard=2 --set batch.sequence_length=128
  ok "so does $command" sh -c 'grep -q "a configuration of torchtitan" err && test -s out'
done
"$highwater" run tiny --plan - --set batch.sequence_length=128 <"$corpus/accelerate_plain" >out 2>err
ok "from standard input too" grep -q "^standard input: a configuration of accelerate" err
run run tiny --plan "$corpus/accelerate_plain" --set batch.sequence_length=128 --output kept
answers "a kept run needs the file no more" 0 report kept

# ---- the other way ----

# The same plan lowers to the same program.
same_plan() {
  "$highwater" import plan exported -o again.json >note && \
    "$highwater" lower tiny --plan "$1" --set batch.sequence_length=128 >wanted 2>/dev/null && \
    "$highwater" lower tiny --plan again.json --set batch.sequence_length=128 >got && cmp -s wanted got
}
while read -r format plan; do
  answers "$plan is exported as $format" 0 export plan "$plan" --as "$format" -o exported
  ok "$format's $plan is the same plan" same_plan "$plan"
done <<'EOF'
accelerate ddp
accelerate lora
accelerate zero1
accelerate zero2
accelerate zero3
deepspeed zero1
deepspeed zero2
deepspeed zero3
torchtitan ddp
torchtitan fsdp2
torchtitan fsdp2-no-reshard
torchtitan hsdp
EOF
for plan in fsdp1 fsdp1-hybrid fsdp2 hsdp; do
  refuses "accelerate reduces in the dtype of the computation: $plan" 'cannot say precision.reduce = "fp32" (there it is "bf16")' \
    export plan $plan --as accelerate
  answers "$plan with that dtype is exported" 0 export plan $plan --as accelerate --set precision.reduce=bf16 -o exported
  "$highwater" import plan exported -o again.json >note
  "$highwater" lower tiny --plan $plan --set precision.reduce=bf16 --set batch.sequence_length=128 >wanted
  ok "and is the same plan" sh -c "'$highwater' lower tiny --plan again.json --set batch.sequence_length=128 | cmp -s - wanted"
done
run export plan zero2 --as deepspeed
ok "what the script has to say is named" grep -q '^left to the training script: batch.sequence_length = 8192, activation_checkpointing.policy = "full"' err
ok "in DeepSpeed's words" prints '"train_batch_size":	8'
refuses "a strategy that the format lacks" "key 'strategy': DeepSpeed does not run fsdp2, only zero0" export plan fsdp2 --as deepspeed
refuses "groups that the format lacks" "cannot say fsdp.blocks_per_group = 2" export plan fsdp2 --as torchtitan --set fsdp.blocks_per_group=2
refuses "a format that does not exist" "--as: 'megatron' is not one of accelerate, deepspeed, torchtitan" export plan fsdp2 --as megatron
refuses "no format" "say the format" export plan fsdp2
refuses "another thing than a plan" "no kind 'run'; there is: plan" export run fsdp2 --as deepspeed
run export plan "$corpus/script_comment" --as accelerate -o exported
ok "a configuration can be exported, too" grep -q '^distributed_type: MULTI_GPU$' exported
ok "with what its comment says" grep -q '^# highwater: {"batch":{"micro_batch":3,' exported

# ---- the command line ----

refuses "a plan of our own is no configuration" "no configuration of DeepSpeed, accelerate" import plan "$HIGHWATER_MODELS/plan/fsdp2.json"
refuses "--ranks is for plans" "--ranks is for plans only" import kineto x -o y --ranks 2
refuses "a plan has no device" "--device: a plan has none" import plan x --device 1
refuses "ranks that the file contradicts" "2 ranks, but --ranks says 4" import plan "$corpus/accelerate_json" --ranks 4
run import plan "$corpus/accelerate_json"
ok "without -o the plan is on standard output" prints '"strategy":	"ddp"'
ok "and the note on standard error" grep -q "a configuration of accelerate" err
finish
