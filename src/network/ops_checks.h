/* ops_checks.h - can an op of an exported network work with such operands? */
#ifndef HIGHWATER_NETWORK_OPS_CHECKS_H
#define HIGHWATER_NETWORK_OPS_CHECKS_H

#include "network/ops_format.h"

/* Each gives NULL, or what is wanted of operands and results, as a message's text. */
const char *ops_check_like_first(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_broadcast(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_view(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_pairs(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_transpose(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_part(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_split(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_cat(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_expand(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_reduction(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_mean(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_linear(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_mm(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_addmm(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_bmm(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_norm(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_embedding(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_rows(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_nll_loss(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_attention(const OpsStatement *s, const ValueInfo *in);
const char *ops_check_recorded(const OpsStatement *s, const ValueInfo *in);

#endif
