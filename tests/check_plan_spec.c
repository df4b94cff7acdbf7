/* check_plan_spec.c - plans: defaults, values, assignments, presets, and each refusal with its
 * exact message, against a table of strategies made for it; presets against the real ones.  What
 * those accept is theirs. */
#include "base/units.h"
#include "plan_tables.h"
#include "spec/preset.h"
#include "strategy/strategy.h"
#include "tap_main.h"
#include <string.h>

static PlanSpec *
parse_with(const char *text, const char *const *assignments, GError **error)
{
  return plan_spec_parse("plan.json", text, strlen(text), assignments, test_strategies, error);
}

static PlanSpec *
parse(const char *text)
{
  g_autoptr(GError) error = NULL;
  PlanSpec *spec = parse_with(text, NULL, &error);
  ck_assert_msg(spec != NULL, "%s", error ? error->message : "");
  return spec;
}

START_TEST(an_empty_plan_is_one_rank_with_pytorchs_defaults)
{
  g_autoptr(PlanSpec) p = parse("{}");
  ck_assert_str_eq(p->name, "plan");
  ck_assert_str_eq(p->file, "plan.json");
  ck_assert_str_eq(p->strategy, "none");
  ck_assert(p->section == NULL && p->options == NULL);
  ck_assert(p->shard == 1 && p->replicate == 1);
  ck_assert(p->micro_batch == 1 && p->sequence_length == 8192 && !p->sequence_length_given);
  ck_assert(p->accumulation.steps == 1 && p->accumulation.sync_every_step);
  ck_assert(p->accumulation.reshard_after_backward && !p->accumulation.set_last_backward);
  ck_assert_int_eq(p->accumulation.all_reduce_every, 1);
  ck_assert(!p->accumulation.reshard_after_backward_given);
  ck_assert_int_eq(p->precision.parameters, DTYPE_FP32);
  ck_assert_int_eq(p->precision.compute, DTYPE_FP32);
  ck_assert_int_eq(p->precision.reduce, DTYPE_FP32);
  ck_assert(!p->precision.has_output && !p->precision.autocast && !p->precision.compute_given);
  ck_assert_int_eq(p->checkpointing.policy, CHECKPOINT_NONE);
  ck_assert_int_eq(p->checkpointing.around, AROUND_MODULE);
  ck_assert(!p->checkpointing.wrapper && p->loop == LOOP_PLAIN);
  ck_assert_int_eq(p->optimizer.name, OPTIMIZER_ADAMW);
  ck_assert_int_eq(p->optimizer.implementation, OPTIMIZER_FOREACH);
  ck_assert(p->optimizer.clip_grad_norm == 0 && p->optimizer.zero_grad == ZERO_GRAD_START);
  ck_assert(!p->allocator.expandable_segments && p->allocator.max_split_size == G_MAXINT64);
  ck_assert(p->allocator.garbage_collection_threshold == 0);
  ck_assert(p->allocator.roundup_power2_divisions == 0);
  ck_assert(!p->compile_per_block && p->retain->len == 0);
}
END_TEST

START_TEST(a_null_is_the_default)
{
  g_autoptr(PlanSpec) p = parse("{\"mesh\": null, \"optimizer\": {\"clip_grad_norm\": null, "
                                "\"name\": null}, \"fsdp\": null, \"offload\": null, "
                                "\"allocator\": {\"max_split_size\": null}}");
  ck_assert(p->shard == 1 && p->optimizer.clip_grad_norm == 0);
  ck_assert_int_eq(p->allocator.max_split_size, G_MAXINT64);
}
END_TEST

START_TEST(every_key_reaches_its_field)
{
  g_autoptr(PlanSpec) p =
      parse("{\"strategy\": \"fsdp2\", \"mesh\": {\"shard\": 64, \"replicate\": 4},"
            "\"batch\": {\"micro_batch\": 2, \"sequence_length\": 4096},"
            "\"accumulation\": {\"steps\": 3, \"sync_every_step\": false, "
            "\"reshard_after_backward\": false, \"set_last_backward\": true},"
            "\"precision\": {\"parameters\": \"float32\", \"compute\": \"bf16\", \"reduce\": "
            "\"fp32\", \"output\": \"fp32\"},"
            "\"activation_checkpointing\": {\"policy\": \"every_n\", \"every\": 3, \"around\": "
            "\"fsdp\"},"
            "\"optimizer\": {\"name\": \"sgd\", \"implementation\": \"forloop\", "
            "\"clip_grad_norm\": 0.5, \"zero_grad\": \"end\"},"
            "\"allocator\": {\"expandable_segments\": true, \"max_split_size\": \"64MiB\", "
            "\"garbage_collection_threshold\": 0.8, \"roundup_power2_divisions\": 4},"
            "\"fsdp\": {\"blocks_per_group\": 2, \"head\": \"own\", \"reshard_after_forward\": 8},"
            "\"compile\": \"per_block\", \"_note\": \"a comment\"}");
  ck_assert(p->shard == 64 && p->replicate == 4);
  ck_assert(p->micro_batch == 2 && p->sequence_length == 4096 && p->sequence_length_given);
  ck_assert(p->accumulation.steps == 3 && !p->accumulation.sync_every_step);
  ck_assert(!p->accumulation.reshard_after_backward && p->accumulation.set_last_backward);
  ck_assert(p->accumulation.set_last_backward_given && p->accumulation.sync_every_step_given);
  ck_assert_int_eq(p->precision.compute, DTYPE_BF16);
  ck_assert_int_eq(p->precision.reduce, DTYPE_FP32);
  ck_assert(p->precision.has_output && p->precision.output == DTYPE_FP32);
  ck_assert_int_eq(p->checkpointing.policy, CHECKPOINT_EVERY_N);
  ck_assert(p->checkpointing.every == 3 && p->checkpointing.around == AROUND_FSDP);
  ck_assert_int_eq(p->optimizer.name, OPTIMIZER_SGD);
  ck_assert_int_eq(p->optimizer.implementation, OPTIMIZER_FORLOOP);
  ck_assert(p->optimizer.clip_grad_norm == 0.5 && p->optimizer.zero_grad == ZERO_GRAD_END);
  ck_assert(p->allocator.expandable_segments && p->allocator.max_split_size == 64 * MIB);
  ck_assert(p->allocator.garbage_collection_threshold == 0.8);
  ck_assert_int_eq(p->allocator.roundup_power2_divisions, 4);
  ck_assert_int_eq(plan_spec_number(p, "blocks_per_group"), 2);
  ck_assert_int_eq(plan_spec_number(p, "head"), 1);
  ck_assert_int_eq(plan_spec_number(p, "embedding"), 0);
  ck_assert(!plan_spec_option(p, "embedding")->given);
  ck_assert_int_eq(plan_spec_number(p, "reshard_after_forward"), 8);
  ck_assert(p->compile_per_block);
}
END_TEST

static const struct {
  const char *text;
  DType compute, reduce;
} precisions[] = {
    /* FSDP2: compute follows the parameters, reduction the compute dtype. */
    {"{\"parameters\": \"bf16\"}", DTYPE_BF16, DTYPE_BF16},
    {"{\"compute\": \"bf16\"}", DTYPE_BF16, DTYPE_BF16},
    {"{\"compute\": \"bf16\", \"reduce\": \"fp32\"}", DTYPE_BF16, DTYPE_FP32},
    /* Autocast leaves parameters, and so gradients, as they are. */
    {"{\"compute\": \"fp16\", \"autocast\": true}", DTYPE_FP16, DTYPE_FP32},
};

START_TEST(dtypes_left_out_follow_those_given)
{
  g_autofree char *text = g_strdup_printf("{\"precision\": %s}", precisions[_i].text);
  g_autoptr(PlanSpec) p = parse(text);
  ck_assert_int_eq(p->precision.compute, precisions[_i].compute);
  ck_assert_int_eq(p->precision.reduce, precisions[_i].reduce);
}
END_TEST

START_TEST(groups_can_be_retained)
{
  g_autoptr(PlanSpec) p = parse("{\"retain\": [{\"group\": \"layers.15\", \"as\": \"unsharded\", "
                                "\"until\": \"end_of_forward\"}, {\"group\": \"root\"}]}");
  ck_assert_uint_eq(p->retain->len, 2);
  const RetainSpec *first = g_ptr_array_index(p->retain, 0);
  const RetainSpec *second = g_ptr_array_index(p->retain, 1);
  ck_assert_str_eq(first->group, "layers.15");
  ck_assert(first->as == RETAIN_UNSHARDED && first->until == RETAIN_END_OF_FORWARD);
  ck_assert_str_eq(second->group, "root");
  ck_assert(second->as == RETAIN_CLONE && second->until == RETAIN_END_OF_STEP);
}
END_TEST

START_TEST(the_defaults_of_a_policys_option_may_be_repeated_anywhere)
{
  g_autoptr(PlanSpec) p =
      parse("{\"activation_checkpointing\": {\"policy\": \"none\", \"every\": 2, \"around\": "
            "\"module\"}}");
  ck_assert_int_eq(p->checkpointing.policy, CHECKPOINT_NONE);
}
END_TEST

START_TEST(a_fraction_of_the_blocks_can_be_checkpointed)
{
  g_autoptr(PlanSpec) p =
      parse("{\"activation_checkpointing\": {\"policy\": \"fraction\", \"fraction\": 0.25}}");
  ck_assert_int_eq(p->checkpointing.policy, CHECKPOINT_FRACTION);
  ck_assert(p->checkpointing.fraction == 0.25);
}
END_TEST

/* fms-fsdp's policies/ac_handler.py says which blocks (x) of fractions in its description. */
START_TEST(a_fraction_is_of_the_blocks_that_fms_fsdp_takes)
{
  static const struct {
    const char *fraction, *blocks;
  } cases[] = {
      {"0", "......"},
      {"1", "xxxxxx"},
      {"0.5", "x.x.x."},
      {"0.3333333333333333", ".x..x."},
      {"0.6666666666666666", "x.xx.x"},
  };
  for (guint i = 0; i < G_N_ELEMENTS(cases); i++) {
    g_autofree char *text = g_strdup_printf(
        "{\"activation_checkpointing\": {\"policy\": \"fraction\", \"fraction\": %s}}",
        cases[i].fraction);
    g_autoptr(PlanSpec) p = parse(text);
    for (int block = 0; cases[i].blocks[block] != '\0'; block++)
      ck_assert_msg(plan_spec_checkpoints(p, block) == (cases[i].blocks[block] == 'x'),
                    "block %d of fraction %s", block, cases[i].fraction);
  }
}
END_TEST

/* Its loop: a block is taken when its number times the fraction reaches the mark, which then moves
 * on by one. */
START_TEST(a_fraction_takes_a_block_at_each_mark)
{
  for (int percent = 0; percent <= 100; percent++) {
    g_autofree char *text = g_strdup_printf(
        "{\"activation_checkpointing\": {\"policy\": \"fraction\", \"fraction\": %d.%02d}}",
        percent / 100, percent % 100);
    g_autoptr(PlanSpec) p = parse(text);
    double mark = 0.5;
    for (int block = 0; block < 4096; block++) {
      gboolean taken = (block + 1) * p->checkpointing.fraction >= mark;
      mark += taken;
      ck_assert_int_eq(plan_spec_checkpoints(p, block), taken);
    }
  }
}
END_TEST

START_TEST(the_largest_mesh_has_two_to_the_24_ranks)
{
  g_autoptr(PlanSpec) p = parse("{\"mesh\": {\"shard\": 1048576, \"replicate\": 16}}");
  ck_assert_int_eq((gint64) p->shard * p->replicate, 1 << 24);
}
END_TEST

START_TEST(assignments_override_the_file_in_order)
{
  static const char *const assignments[] = {
      "strategy=ddp",          "fsdp=null", "mesh.shard=1", "mesh.replicate=4", "mesh.replicate=8",
      "ddp.bucket_cap_mb=100", NULL};
  g_autoptr(GError) error = NULL;
  g_autoptr(PlanSpec) p = parse_with("{\"strategy\": \"fsdp2\", \"mesh\": {\"shard\": 8}, "
                                     "\"fsdp\": {\"blocks_per_group\": 1}}",
                                     assignments, &error);
  ck_assert_msg(p != NULL, "%s", error ? error->message : "");
  ck_assert_str_eq(p->strategy, "ddp");
  ck_assert(p->shard == 1 && p->replicate == 8);
  ck_assert_int_eq(plan_spec_number(p, "bucket_cap_mb"), 100);
}
END_TEST

START_TEST(a_malformed_assignment_is_refused)
{
  static const char *const assignments[] = {"mesh.shard", NULL};
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse_with("{}", assignments, &error));
  ck_assert(test_error_says(error, "--set 'mesh.shard'"));
}
END_TEST

#define SECTION_OF_DDP "strategy 'fsdp2' does not use this section, only ddp"
static const struct {
  const char *text, *message;
} bad_plans[] = {
    /* keys */
    {"{\"meshh\": {}}", "unknown key 'meshh'; did you mean 'mesh'?"},
    {"{\"mesh\": {\"shards\": 8}}", "unknown key 'mesh.shards'; did you mean 'shard'?"},
    {"{\"strategy\": \"fsdp2\", \"fsdp\": {\"reshard_after_forwards\": true}}",
     "unknown key 'fsdp.reshard_after_forwards'; did you mean 'reshard_after_forward'?"},
    {"{\"retain\": [{\"group\": \"root\", \"unitl\": \"end_of_step\"}]}",
     "unknown key 'retain[0].unitl'; did you mean 'until'?"},
    {"{\"trainable\": []}",
     "key 'trainable': must be an array of 1 to 64 patterns of parameters' names"},
    {"{\"trainable\": \"layers.*\"}",
     "key 'trainable': must be an array of 1 to 64 patterns of parameters' names"},
    {"{\"trainable\": [\"a\", 2]}",
     "key 'trainable': must be an array of strings, patterns of parameters' names"},
    {"{\"trainable\": [\"!\"]}", "key 'trainable': a pattern has 1 to 256 characters"},
    {"{\"lora\": {\"targets\": [\"q_proj\"]}}", "key 'lora.rank' is missing"},
    {"{\"lora\": {\"rank\": 0}}", "key 'lora.rank': 0 is not in 1..1048576"},
    {"{\"lora\": {\"rank\": 8}}", "key 'lora.targets' is missing"},
    {"{\"lora\": {\"rank\": 8, \"targets\": [\"!q\"]}}",
     "key 'lora.targets': '!q': targets take nothing out"},
    {"{\"lora\": {\"rank\": 8, \"targets\": [\"q\"], \"code\": \"lit\"}}",
     "key 'lora.code': 'lit' is not one of peft, plain"},
    {"{\"lora\": {\"rank\": 8, \"targets\": [\"q\"], \"code\": \"plain\", \"dropout\": 0.1}}",
     "key 'lora.dropout': only the code of peft has it"},
    {"{\"lora\": {\"rank\": 8, \"targets\": [\"q\"], \"dtype\": \"bf16\"}}",
     "key 'lora.dtype': adapters of another dtype than precision.parameters (fp32) are not yet "
     "supported"},
    {"{\"lora\": {\"rank\": 8, \"targets\": [\"q\"], \"dropout\": 1.5}}",
     "key 'lora.dropout': 1.5 is not in 0..1"},
    {"{\"offload\": {}}", "key 'offload': not yet supported"},
    {"{\"phases\": []}", "key 'phases': an object is needed, not an array"},
    {"{\"failure\": 1}", "key 'failure': an object is needed, not a number"},
    /* ranks */
    {"{\"ranks\": {\"slow\": [{\"rank\": 8, \"compute\": 1.1}]}, \"mesh\": {\"shard\": 8}}",
     "key 'ranks.slow[0].rank': 8 is not in 0..7"},
    {"{\"ranks\": {\"slow\": [{\"rank\": 0}]}}", "key 'ranks.slow[0].compute' is missing"},
    {"{\"ranks\": {\"slow\": [{\"rank\": 1, \"compute\": 2}, {\"rank\": 1, \"compute\": 3}]},"
     " \"mesh\": {\"shard\": 8}}",
     "key 'ranks.slow[1].rank': 1 is given twice"},
    {"{\"ranks\": {\"jitter\": 1}}", "key 'ranks.jitter': 1 is not in 0..0.3"},
    /* strategies and their sections */
    {"{\"strategy\": \"fsdp3\"}", "key 'strategy': 'fsdp3' is not one of none, ddp, fsdp1, fsdp2"},
    {"{\"strategy\": 2}", "key 'strategy': a string is needed, not a number"},
    {"{\"strategy\": \"fsdp2\", \"ddp\": {}}", "key 'ddp': " SECTION_OF_DDP},
    {"{\"strategy\": \"fsdp2\", \"ddp\": {\"nonsense\": 1}}", "key 'ddp': " SECTION_OF_DDP},
    {"{\"fsdp\": {\"head\": \"own\"}}",
     "key 'fsdp': strategy 'none' does not use this section, only fsdp1, fsdp2"},
    {"{\"strategy\": \"fsdp2\", \"fsdp\": {\"head\": \"first\"}}",
     "key 'fsdp.head': 'first' is not one of root, own"},
    /* mesh and batch */
    {"{\"mesh\": {\"shard\": 0}}", "key 'mesh.shard': 0 is not in 1..1048576"},
    {"{\"mesh\": {\"shard\": -8}}", "key 'mesh.shard': -8 is not in 1..1048576"},
    {"{\"mesh\": {\"shard\": 2097152}}", "key 'mesh.shard': 2097152 is not in 1..1048576"},
    {"{\"mesh\": {\"shard\": \"8\"}}", "key 'mesh.shard': a whole number is needed, not a string"},
    {"{\"mesh\": {\"shard\": 1048576, \"replicate\": 1048576}}",
     "key 'mesh': 1048576 shards x 1048576 replicas are 1099511627776 ranks, more than 16777216"},
    {"{\"mesh\": [8, 1]}", "key 'mesh': an object is needed, not an array"},
    {"{\"batch\": {\"micro_batch\": 0}}", "key 'batch.micro_batch': 0 is not in 1..1048576"},
    {"{\"batch\": {\"sequence_length\": 2147483648}}",
     "key 'batch.sequence_length': 2147483648 is not in 1..2147483647"},
    {"{\"batch\": {\"sequence_length\": 1e30}}",
     "key 'batch.sequence_length': 1e+30 is beyond 2^53"},
    {"{\"accumulation\": {\"steps\": 0}}", "key 'accumulation.steps': 0 is not in 1..1024"},
    {"{\"accumulation\": {\"sync_every_step\": 1}}",
     "key 'accumulation.sync_every_step': true or false is needed, not a number"},
    /* precision */
    {"{\"precision\": {\"compute\": \"fp8\"}}",
     "key 'precision.compute': 'fp8' is not one of fp32, bf16, fp16"},
    {"{\"precision\": {\"parameters\": \"int64\"}}",
     "key 'precision.parameters': 'int64' is not one of fp32, bf16, fp16"},
    {"{\"precision\": {\"autocast\": true}}",
     "key 'precision.autocast': needs 'compute' bf16 or fp16"},
    {"{\"precision\": {\"compute\": \"bf16\", \"autocast\": true, \"output\": \"bf16\"}}",
     "key 'precision.output': with 'autocast' only fp32, as accelerate casts"},
    {"{\"precision\": {\"compute\": \"bf16\", \"grad_scaler\": true}}",
     "key 'precision.grad_scaler': needs 'compute' fp16"},
    {"{\"loop\": \"composer\"}", "key 'loop': 'composer' is not one of plain, accelerate, trainer"},
    {"{\"loop\": \"accelerate\", \"trainer\": {}}",
     "key 'trainer': has a meaning only with loop 'trainer'"},
    /* checkpointing */
    {"{\"activation_checkpointing\": {\"wrapper\": true}}",
     "key 'activation_checkpointing.wrapper': has a meaning only with policy full, every_n, "
     "fraction or selective_op"},
    {"{\"activation_checkpointing\": {\"policy\": \"selective\"}}",
     "key 'activation_checkpointing.policy': 'selective' is not one of none, full, every_n, "
     "fraction, selective_op"},
    {"{\"activation_checkpointing\": {\"policy\": \"full\", \"every\": 4}}",
     "key 'activation_checkpointing.every': has a meaning only with policy every_n"},
    {"{\"activation_checkpointing\": {\"policy\": \"every_n\", \"every\": 0}}",
     "key 'activation_checkpointing.every': 0 is not in 1..1048576"},
    {"{\"activation_checkpointing\": {\"policy\": \"every_n\", \"fraction\": 0.5}}",
     "key 'activation_checkpointing.fraction': has a meaning only with policy fraction"},
    {"{\"activation_checkpointing\": {\"policy\": \"fraction\"}}",
     "key 'activation_checkpointing.fraction' is missing"},
    {"{\"activation_checkpointing\": {\"policy\": \"fraction\", \"fraction\": 1.5}}",
     "key 'activation_checkpointing.fraction': 1.5 is not in 0..1"},
    {"{\"activation_checkpointing\": {\"early_stop\": false}}",
     "key 'activation_checkpointing.early_stop': has a meaning only with policy full, every_n, "
     "fraction or selective_op"},
    {"{\"activation_checkpointing\": {\"around\": \"fsdp\"}}",
     "key 'activation_checkpointing.around': has a meaning only with policy full, every_n, "
     "fraction or selective_op"},
    /* optimizer and allocator */
    {"{\"optimizer\": {\"name\": \"lion\"}}",
     "key 'optimizer.name': 'lion' is not one of adamw, adam, sgd, none"},
    {"{\"optimizer\": {\"implementation\": \"loop\"}}",
     "key 'optimizer.implementation': 'loop' is not one of fused, foreach, forloop, composer"},
    {"{\"optimizer\": {\"zero_grad\": \"never\"}}",
     "key 'optimizer.zero_grad': 'never' is not one of start, end"},
    {"{\"optimizer\": {\"clip_grad_norm\": -1}}",
     "key 'optimizer.clip_grad_norm': -1 is not in 0..1e+09"},
    {"{\"allocator\": {\"garbage_collection_threshold\": 1}}",
     "key 'allocator.garbage_collection_threshold': must be below 1"},
    {"{\"allocator\": {\"garbage_collection_threshold\": -0.1}}",
     "key 'allocator.garbage_collection_threshold': -0.10000000000000001 is not in 0..1"},
    {"{\"allocator\": {\"max_split_size\": \"20MiB\"}}",
     "key 'allocator.max_split_size': 20971520 bytes is not in 20971521..9223372036854775807"},
    {"{\"allocator\": {\"max_split_size\": -1}}", "key 'allocator.max_split_size': -1 is negative"},
    {"{\"allocator\": {\"roundup_power2_divisions\": 6}}",
     "key 'allocator.roundup_power2_divisions': 6 is not a power of 2"},
    {"{\"compile\": \"all\"}", "key 'compile': 'all' is not one of none, per_block"},
    /* retained groups */
    {"{\"retain\": {\"group\": \"root\"}}", "key 'retain': an array is needed, not an object"},
    {"{\"retain\": [\"root\"]}", "key 'retain[0]': an object is needed, not a string"},
    {"{\"retain\": [{\"as\": \"clone\"}]}", "key 'retain[0].group' is missing"},
    {"{\"retain\": [{\"group\": \"root\", \"as\": \"view\"}]}",
     "key 'retain[0].as': 'view' is not one of clone, unsharded, reference"},
    /* the text */
    {"{\"mesh\": {\"shard\": 8}", "line 1: the text ends where ',' or '}' is expected"},
};

START_TEST(a_wrong_plan_is_refused_in_one_line)
{
  g_autoptr(GError) error = NULL;
  ck_assert_ptr_null(parse_with(bad_plans[_i].text, NULL, &error));
  g_autofree char *expected = g_strconcat("plan.json: ", bad_plans[_i].message, NULL);
  ck_assert_str_eq(error->message, expected);
  ck_assert(error->domain == HIGHWATER_ERROR && !strchr(error->message, '\n'));
}
END_TEST

START_TEST(a_strategy_refuses_in_the_same_form)
{
  g_autoptr(PlanSpec) p = parse("{}");
  g_autoptr(GError) error = NULL;
  plan_spec_refuse(p, &error, "mesh.shard", "%d ranks cannot be %s", 8, "one");
  ck_assert_str_eq(error->message, "plan.json: key 'mesh.shard': 8 ranks cannot be one");
}
END_TEST

START_TEST(choices_have_the_names_they_are_written_with)
{
  ck_assert_str_eq(checkpoint_policy_name(CHECKPOINT_SELECTIVE_OP), "selective_op");
  ck_assert_str_eq(plan_optimizer_name(OPTIMIZER_SGD), "sgd");
  ck_assert_str_eq(plan_optimizer_code_name(OPTIMIZER_FORLOOP), "forloop");
}
END_TEST

START_TEST(every_plan_preset_loads)
{
  static const char *const promised[] = {
      "ddp", "fsdp2", "fsdp2-no-reshard", "hsdp", "zero1", "zero2", "zero3", NULL};
  g_auto(GStrv) names = preset_names("plan");
  g_autofree PlanStrategy *all = strategy_plan_table();
  for (guint i = 0; promised[i]; i++)
    ck_assert(g_strv_contains((const char *const *) names, promised[i]));
  for (guint i = 0; names[i]; i++) {
    g_autoptr(GError) error = NULL;
    g_autoptr(PlanSpec) p = plan_spec_load(names[i], NULL, all, &error);
    ck_assert_msg(p != NULL, "%s", error ? error->message : "");
    ck_assert_str_eq(p->name, names[i]);
    ck_assert_int_eq(p->precision.compute, DTYPE_BF16);
  }
  g_autoptr(PlanSpec) hsdp = plan_spec_load("hsdp", NULL, test_strategies, NULL);
  ck_assert(hsdp->shard == 8 && hsdp->replicate == 2);
  g_autoptr(PlanSpec) ddp = plan_spec_load("ddp", NULL, test_strategies, NULL);
  ck_assert(ddp->shard == 1 && ddp->replicate == 8 && ddp->precision.autocast);
  ck_assert_int_eq(ddp->precision.reduce, ddp->precision.parameters);
}
END_TEST

Suite *
test_suite(void)
{
  Suite *suite = suite_create("plan_spec");
  TCase *values = tcase_create("values"), *refusals = tcase_create("refusals");
  suite_add_tcase(suite, values);
  suite_add_tcase(suite, refusals);
  tcase_add_test(values, an_empty_plan_is_one_rank_with_pytorchs_defaults);
  tcase_add_test(values, a_null_is_the_default);
  tcase_add_test(values, every_key_reaches_its_field);
  tcase_add_loop_test(values, dtypes_left_out_follow_those_given, 0, G_N_ELEMENTS(precisions));
  tcase_add_test(values, groups_can_be_retained);
  tcase_add_test(values, the_defaults_of_a_policys_option_may_be_repeated_anywhere);
  tcase_add_test(values, a_fraction_of_the_blocks_can_be_checkpointed);
  tcase_add_test(values, a_fraction_is_of_the_blocks_that_fms_fsdp_takes);
  tcase_add_test(values, a_fraction_takes_a_block_at_each_mark);
  tcase_add_test(values, the_largest_mesh_has_two_to_the_24_ranks);
  tcase_add_test(values, assignments_override_the_file_in_order);
  tcase_add_test(values, choices_have_the_names_they_are_written_with);
  tcase_add_test(values, every_plan_preset_loads);
  tcase_add_test(refusals, a_malformed_assignment_is_refused);
  tcase_add_loop_test(refusals, a_wrong_plan_is_refused_in_one_line, 0, G_N_ELEMENTS(bad_plans));
  tcase_add_test(refusals, a_strategy_refuses_in_the_same_form);
  return suite;
}
