/* op_cases.h - what each row of the table of ops should do, worked out by hand.
 *
 * Recipes are written as text; t0 is a temporary, d0 the gradient of input 0, g0 the incoming one:
 *
 *   +o0:48          output 0 is allocated, 48 bytes
 *   +d0:48l         ... in the order of the incoming gradient; e like empty_like of the operand as
 *                   attention kernels see it, h row-major as they see it, nothing: row-major
 *   -t0             a tensor lets go
 *   o0=i0@4         output 0 is a view of input 0 from element 4 on
 *   d0=g0           gradient 0 is the incoming gradient itself
 *   d0=view@4       ... a view of it from element 4 of a dimension on, with its strides; /0 with
 * dimensions 0 and 1 swapped, x broadcast, r with complex numbers as pairs d0=reshape:48   ... a
 * view of it, or a copy of 48 bytes where its order forbids one d0=contiguous:48 ... a view of it,
 * or such a copy where it is not row-major ?t0:48          a copy of g0, unless that is row-major
 * as attention kernels see it d0:=t0          gradient 0 is replaced by a row-major tensor; d0:=t0s
 * by one in its order k:mm            a kernel cublas, cublaslt  the thread's workspaces, made at
 * their first use
 *
 * Derivatives come in alphabetical order of the argument names, saved tensors are released inputs
 * first, then outputs, each alphabetically (rule L4 of PyTorch's generated autograd functions).  A
 * new row of the table comes with a case here. */
#ifndef HIGHWATER_TESTS_OP_CASES_H
#define HIGHWATER_TESTS_OP_CASES_H

#include "network/op.h"

/* Values are row-major unless strides are given (BY): strides of nothing but 0 stand for that. */
#define VALUE(type, wanted, n, sizes, strides)                                                     \
  {                                                                                                \
    .dtype = DTYPE_##type, .dims = n, .requires_grad = wanted, .shape = {sizes}, .stride = {       \
      strides                                                                                      \
    }                                                                                              \
  }
#define BY(...) __VA_ARGS__
#define WANTS(type, n, ...) VALUE(type, TRUE, n, BY(__VA_ARGS__), 0)
#define PLAIN(type, n, ...) VALUE(type, FALSE, n, BY(__VA_ARGS__), 0)

/* A bf16 operand of attention, [batch, heads, length, dim], that was made as [batch, length, heads,
 * dim]. */
#define SEEN(batch, heads, length, dim)                                                            \
  VALUE(BF16, TRUE, 4, BY(batch, heads, length, dim), BY(heads *length *dim, dim, heads *dim, 1))

#define INS(...)                                                                                   \
  {                                                                                                \
    __VA_ARGS__                                                                                    \
  }
#define AT(...)                                                                                    \
  {                                                                                                \
    __VA_ARGS__                                                                                    \
  }
#define NO_ATTRIBUTES AT(.batch = 0)
#define ROW(id, ...)                                                                               \
  {                                                                                                \
    OP_##id, __VA_ARGS__                                                                           \
  }

typedef struct {
  OpId op;
  const char *name; /* what the case is about */
  int ins;
  ValueInfo in[OP_INPUTS];
  OpAttributes at;
  /* expected */
  const char *outs; /* "bf16[2,3,4] fp32[6]"; "bf16[4,5](1,4)": strides where not row-major */
  const char *forward;
  const char *saved;    /* "i1 i0 o2", in order of release */
  const char *backward; /* NULL: no node is recorded */
  const char *validate;
} Case;

/* grad * (3 * x * x), where x was kept and ten bytes more; and x.relu_(). */
static const RecordedStep cube_backward[] = {{RECORDED_TEMP, 3, 48},
                                             {RECORDED_TEMP, 1, 48},
                                             {RECORDED_RELEASE, 1, 0},
                                             {RECORDED_GRAD, 0, 0},
                                             {RECORDED_RELEASE, 3, 0}};
static const RecordedOp recorded_cube = {.outs = 1,
                                         .out = {VALUE(BF16, FALSE, 2, BY(6, 4), BY(4, 1))},
                                         .view_of = {-1},
                                         .saves = 1,
                                         .saved = {BUFFER_IN},
                                         .kept = 10,
                                         .backward = cube_backward,
                                         .steps = G_N_ELEMENTS(cube_backward),
                                         .what = "cube"};
static const RecordedStep in_place_backward[] = {{RECORDED_PASS, 0, 0}};
static const RecordedOp recorded_in_place = {.outs = 1,
                                             .out = {VALUE(BF16, FALSE, 2, BY(6, 4), BY(4, 1))},
                                             .backward = in_place_backward,
                                             .steps = 1,
                                             .what = "relu_"};

static const Case op_cases[] = {
    /* -- views: nothing is allocated forward -- */
    ROW(VIEW, "a view's gradient is a view, or a copy where its memory order forbids that", 1,
        INS(WANTS(BF16, 3, 2, 3, 4)), AT(.result = PLAIN(BF16, 2, 6, 4)), "bf16[6,4]", "o0=i0@0",
        "", "d0=reshape:48", ""),
    /* a batch of one of [3, 2, 4] with its first dimensions swapped */
    ROW(VIEW, "a view of what is strided keeps the strides", 1,
        INS(VALUE(BF16, TRUE, 4, BY(1, 2, 3, 4), BY(24, 4, 8, 1))),
        AT(.result = VALUE(BF16, FALSE, 3, BY(2, 3, 4), BY(4, 8, 1))), "bf16[2,3,4](4,8,1)",
        "o0=i0@0", "", "d0=reshape:48", ""),
    ROW(UNSAFE_VIEW, "unsafe_view is a view", 1, INS(WANTS(BF16, 2, 6, 4)),
        AT(.result = PLAIN(BF16, 3, 2, 3, 4)), "bf16[2,3,4]", "o0=i0@0", "", "d0=reshape:48", ""),
    ROW(TRANSPOSE, "a transpose's gradient is transposed back", 1, INS(WANTS(BF16, 2, 5, 4)),
        AT(.result = VALUE(BF16, FALSE, 2, BY(4, 5), BY(1, 4))), "bf16[4,5](1,4)", "o0=i0@0", "",
        "d0=view@0/0", ""),
    ROW(TRANSPOSE, "heads before tokens: the view begins where its base does", 1,
        INS(WANTS(BF16, 4, 2, 3, 5, 4)),
        AT(.result = VALUE(BF16, FALSE, 4, BY(2, 5, 3, 4), BY(60, 4, 20, 1)), .size = {1}),
        "bf16[2,5,3,4](60,4,20,1)", "o0=i0@0", "", "d0=view@0/1", ""),
    ROW(VIEW_AS_COMPLEX, "pairs as complex numbers", 1, INS(WANTS(FP32, 3, 2, 3, 2)),
        AT(.result = PLAIN(COMPLEX64, 2, 2, 3)), "complex64[2,3]", "o0=i0@0", "", "d0=view@0r", ""),
    ROW(VIEW_AS_REAL, "complex numbers as pairs; view_as_complex needs a row-major gradient", 1,
        INS(WANTS(COMPLEX64, 2, 2, 3)), AT(.result = PLAIN(FP32, 3, 2, 3, 2)), "fp32[2,3,2]",
        "o0=i0@0", "", "d0=contiguous:48", ""),
    ROW(SLICE, "a slice's gradient is zeros of the whole", 1, INS(WANTS(BF16, 3, 2, 3, 8)),
        AT(.result = VALUE(BF16, FALSE, 3, BY(2, 3, 4), BY(24, 8, 1)), .size = {4}),
        "bf16[2,3,4](24,8,1)", "o0=i0@4", "", "+d0:96 k:slice", ""),
    ROW(SPLIT, "three parts side by side, whose gradients are put together", 1,
        INS(WANTS(BF16, 3, 2, 3, 12)), AT(.number = 2, .size = {4, 4, 4, -1}),
        "bf16[2,3,4](36,12,1) bf16[2,3,4](36,12,1) bf16[2,3,4](36,12,1)", "o0=i0@0 o1=i0@4 o2=i0@8",
        "", "+d0:144 k:cat", ""),
    ROW(SPLIT, "parts of which the first is wider", 1, INS(WANTS(BF16, 3, 2, 3, 8)),
        AT(.number = 2, .size = {4, 2, 2, -1}),
        "bf16[2,3,4](24,8,1) bf16[2,3,2](24,8,1) bf16[2,3,2](24,8,1)", "o0=i0@0 o1=i0@4 o2=i0@6",
        "", "+d0:96 k:cat", ""),
    /* rows 2 and 3 of 6 elements: the first parts begin at element 2 * 6 */
    ROW(SPLIT, "the first parts of many, and the whole for the others", 1,
        INS(WANTS(BF16, 2, 12, 6)), AT(.number = 0, .first = 2, .size = {1, 3, 0, 2}, .flag = TRUE),
        "bf16[12,6] bf16[1,6] bf16[3,6] bf16[0,6] bf16[2,6]",
        "o0=i0@0 o1=i0@12 o2=i0@18 o3=i0@36 o4=i0@36", "", "d0=g0 k:cat", ""),
    ROW(SPLIT, "the last parts of many: their node makes the gradient of all", 1,
        INS(WANTS(BF16, 3, 2, 5, 4)), AT(.number = 1, .first = 3, .size = {1, 1, -1, -1}),
        "bf16[2,1,4](20,4,1) bf16[2,1,4](20,4,1)", "o0=i0@12 o1=i0@16", "", "+d0:80 k:cat", ""),
    ROW(EXPAND, "an expanded dimension is summed", 1, INS(WANTS(BF16, 4, 2, 3, 1, 4)),
        AT(.result = VALUE(BF16, FALSE, 4, BY(2, 3, 5, 4), BY(12, 4, 0, 1))),
        "bf16[2,3,5,4](12,4,0,1)", "o0=i0@0", "", "+d0:48 k:expand", ""),
    /* -- element-wise and copies -- */
    ROW(TO_COPY, "a cast's gradient is cast back", 1, INS(WANTS(BF16, 2, 6, 4)),
        AT(.result = PLAIN(FP32, 2, 6, 4)), "fp32[6,4]", "+o0:96 k:to_copy", "",
        "+d0:48l k:to_copy", ""),
    ROW(TO_IF_NEEDED, "a table's cast records nothing", 1, INS(PLAIN(FP32, 2, 6, 4)),
        AT(.result = PLAIN(BF16, 2, 6, 4)), "bf16[6,4]", "+o0:48 k:to_copy", "", NULL, NULL),
    ROW(TO_CACHED, "autocast's copy of a weight: its gradient is cast back", 1,
        INS(WANTS(FP32, 2, 5, 4)), AT(.result = PLAIN(BF16, 2, 5, 4)), "bf16[5,4]",
        "+o0:40 k:to_copy", "", "+d0:80l k:to_copy", ""),
    ROW(CLONE, "a copy passes its gradient on", 1, INS(WANTS(BF16, 2, 6, 4)),
        AT(.result = PLAIN(BF16, 2, 6, 4)), "bf16[6,4]", "+o0:48 k:clone", "", "d0=g0", ""),
    /* 48 bytes, of which 24 are copied into */
    ROW(COPY_SLICE, "the first copy into an empty tensor: only the source wants a gradient", 2,
        INS(PLAIN(BF16, 2, 6, 4), WANTS(BF16, 2, 6, 2)), NO_ATTRIBUTES, "bf16[6,4]",
        "o0=i0@0 k:copy_", "", "+t0:48 +d1:24 k:copy_slices -t0", ""),
    ROW(COPY_SLICE, "the next one: the rest of the gradient goes on", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 6, 2)), NO_ATTRIBUTES, "bf16[6,4]",
        "o0=i0@0 k:copy_", "", "+d0:48 +d1:24 +t0:24 -t0 k:copy_slices", ""),
    ROW(ADD, "both operands get the gradient itself", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]", "+o0:48 k:add",
        "", "d0=g0 d1=g0", ""),
    ROW(ADD, "only who wants a gradient gets one", 2,
        INS(PLAIN(BF16, 2, 6, 4), WANTS(BF16, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]", "+o0:48 k:add",
        "", "d1=g0", ""),
    ROW(ADD, "a smaller operand's gradient is summed over what it was broadcast to", 2,
        INS(WANTS(BF16, 3, 2, 3, 4), WANTS(BF16, 2, 3, 4)), NO_ATTRIBUTES, "bf16[2,3,4]",
        "+o0:48 k:add", "", "d0=g0 d1=g0", "+t0:24 k:sum d1:=t0"),
    ROW(ADD, "with fp32 the sum is fp32, and the narrow operand's gradient is cast", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(FP32, 2, 6, 4)), NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:add",
        "", "d0=g0 d1=g0", "+t0:48 k:to_copy d0:=t0s"),
    /* columns are longest apart in both */
    ROW(ADD, "the result has the operands' memory order", 2,
        INS(VALUE(BF16, TRUE, 2, BY(6, 4), BY(1, 6)), VALUE(BF16, TRUE, 2, BY(6, 4), BY(1, 8))),
        NO_ATTRIBUTES, "bf16[6,4](1,6)", "+o0:48 k:add", "", "d0=g0 d1=g0", ""),
    ROW(ADD, "where operands disagree the first one decides", 2,
        INS(WANTS(BF16, 2, 6, 4), VALUE(BF16, TRUE, 2, BY(6, 4), BY(1, 6))), NO_ATTRIBUTES,
        "bf16[6,4]", "+o0:48 k:add", "", "d0=g0 d1=g0", ""),
    ROW(ADD_, "in place: the result is the first operand, both get the gradient itself", 2,
        INS(WANTS(BF16, 1, 6), WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]", "o0=i0@0 k:add_", "",
        "d0=g0 d1=g0", ""),
    ROW(ADD_SCALAR, "a constant changes no gradient", 1, INS(WANTS(FP32, 1, 6)), NO_ATTRIBUTES,
        "fp32[6]", "+o0:24 k:add_scalar", "", "d0=g0", ""),
    /* 6 rows of 2 fp32 are 48 bytes; other: -grad * ((self / other) / other), self: grad / other */
    ROW(ADD_SCALAR_, "in place: the result is the operand", 1, INS(WANTS(FP32, 1, 6)),
        AT(.key = "value", .number = 0.5), "fp32[6]", "o0=i0@0 k:add_scalar_", "", "d0=g0", ""),
    ROW(DIV_IN_PLACE, "what it divides is cloned for backward; the divisor is summed over its row",
        2, INS(WANTS(FP32, 2, 6, 2), WANTS(FP32, 2, 6, 1)), NO_ATTRIBUTES, "fp32[6,2] fp32[6,2]",
        "+o1:48 o0=i0@0 k:div", "i1 o1",
        "+t0:48 +t1:48 +t2:48 +d1:48l k:div_backward -t2 -t1 -t0 +d0:48l k:div",
        "+t0:24 k:sum d1:=t0"),
    ROW(SUB, "the second operand's gradient is a new tensor, the first one's the incoming one", 2,
        INS(WANTS(FP32, 2, 6, 4), WANTS(FP32, 2, 6, 4)), NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:sub",
        "", "+d1:96l k:neg d0=g0", ""),
    ROW(SUB, "of a mean per row, it is summed to one element a row", 2,
        INS(WANTS(FP32, 2, 6, 4), WANTS(FP32, 2, 6, 1)), NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:sub",
        "", "+d1:96l k:neg d0=g0", "+t0:24 k:sum d1:=t0"),
    ROW(MUL, "each factor is saved for the other's gradient; other comes before self", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]", "+o0:48 k:mul",
        "i1 i0", "+d1:48l k:mul +d0:48l k:mul", ""),
    ROW(MUL, "a factor without gradient needs the other one not saved", 2,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(BF16, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]", "+o0:48 k:mul",
        "i1", "+d0:48l k:mul", ""),
    ROW(MUL, "a gain's gradient is of the whole product until it is summed", 2,
        INS(WANTS(BF16, 1, 4), WANTS(BF16, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]", "+o0:48 k:mul",
        "i1 i0", "+d1:48l k:mul +d0:48l k:mul", "+t0:8 k:sum d0:=t0"),
    ROW(MUL, "a vector times one row of its size is that row", 2,
        INS(WANTS(BF16, 1, 4), PLAIN(BF16, 3, 1, 1, 4)), NO_ATTRIBUTES, "bf16[1,1,4]",
        "+o0:8 k:mul", "i1", "+d0:8l k:mul", "+t0:8 k:sum d0:=t0"),
    ROW(MUL, "a factor per row: its gradient has one element a row", 2,
        INS(WANTS(FP32, 2, 6, 4), WANTS(FP32, 2, 6, 1)), NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:mul",
        "i1 i0", "+d1:96l k:mul +d0:96l k:mul", "+t0:24 k:sum d1:=t0"),
    ROW(MUL_COMPLEX, "the table's conjugate is made for backward: 8 bytes an element", 2,
        INS(WANTS(COMPLEX64, 3, 2, 3, 4), PLAIN(COMPLEX64, 2, 3, 4)), NO_ATTRIBUTES,
        "complex64[2,3,4]", "+o0:192 k:mul_complex", "i1", "+t0:96 +d0:192l k:mul -t0", ""),
    ROW(MUL_SCALAR, "nothing saved", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+o0:12 k:mul_scalar", "", "+d0:12l k:mul_scalar", ""),
    ROW(MUL_SCALAR_, "in place: the result is the operand, its gradient a new tensor", 1,
        INS(WANTS(FP32, 0, 0)), AT(.key = "value", .number = 8), "fp32[]", "o0=i0@0 k:mul_scalar_",
        "", "+d0:4l k:mul_scalar", ""),
    ROW(DIV_SCALAR, "a loss divided by the micro-batches", 1, INS(WANTS(FP32, 0, 0)), NO_ATTRIBUTES,
        "fp32[]", "+o0:4 k:div_scalar", "", "+d0:4l k:div_scalar", ""),
    ROW(NEG, "nothing saved", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]", "+o0:12 k:neg",
        "", "+d0:12l k:neg", ""),
    /* every second column of a [2, 8, 3] whose last dimensions are swapped: the order stays, the
     * gaps go */
    ROW(NEG, "the result of a tensor with gaps is dense, in its order", 1,
        INS(VALUE(BF16, TRUE, 3, BY(2, 3, 4), BY(24, 1, 6))), NO_ATTRIBUTES, "bf16[2,3,4](12,1,3)",
        "+o0:48 k:neg", "", "+d0:48l k:neg", ""),
    ROW(POW, "grad * (2 * x): two intermediates beside the gradient", 1, INS(WANTS(FP32, 1, 6)),
        NO_ATTRIBUTES, "fp32[6]", "+o0:24 k:pow", "i0", "+t0:24 +t1:24 +d0:24l k:pow -t1 -t0", ""),
    ROW(RSQRT, "grad * (-0.5 * y^3), of the saved result", 1, INS(WANTS(FP32, 1, 6)), NO_ATTRIBUTES,
        "fp32[6]", "+o0:24 k:rsqrt", "o0", "+t0:24 +t1:24 +d0:24l k:rsqrt -t1 -t0", ""),
    ROW(TANH, "saves its result", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+o0:12 k:tanh", "o0", "+d0:12l k:tanh", ""),
    ROW(SIGMOID, "saves its result", 1, INS(WANTS(BF16, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]",
        "+o0:48 k:sigmoid", "o0", "+d0:48l k:sigmoid", ""),
    ROW(SILU, "saves its input", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+o0:12 k:silu", "i0", "+d0:12l k:silu", ""),
    ROW(RELU, "saves its result", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+o0:12 k:relu", "o0", "+d0:12l k:relu", ""),
    ROW(GELU, "saves its input", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+o0:12 k:gelu", "i0", "+d0:12l k:gelu", ""),
    ROW(WHERE_NUMBER, "the number is a tensor for a moment, and so is the zero of the gradient", 2,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(BOOL, 2, 6, 4)), NO_ATTRIBUTES, "bf16[6,4]",
        "+t0:2 +o0:48 k:where -t0", "i1", "+t0:2 +d0:48l k:where -t0", ""),
    ROW(EXP, "saves its result", 1, INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+o0:12 k:exp", "o0", "+d0:12l k:exp", ""),
    ROW(DIV, "the gradient of other comes first, from three products, and is summed up", 2,
        INS(WANTS(FP32, 2, 6, 4), WANTS(FP32, 2, 6, 1)), NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:div",
        "i1 i0", "+t0:96 +t1:96 +t2:96 +d1:96l k:mul -t2 -t1 -t0 +d0:96l k:div",
        "+t0:24 k:sum d1:=t0"),
    ROW(DIV, "by a number in a tensor, which alone is saved", 2,
        INS(WANTS(FP32, 0, 0), PLAIN(BF16, 0, 0)), NO_ATTRIBUTES, "fp32[]", "+o0:4 k:div", "i1",
        "+d0:4l k:div", ""),
    ROW(CLAMP, "saves its input, which is compared with both limits once more", 1,
        INS(WANTS(BF16, 1, 6)), AT(.key = "limit", .number = 0.7), "bf16[6]", "+o0:12 k:clamp",
        "i0", "+t0:2 +t1:6 +t2:6 k:compare +d0:12i k:where -t2 -t1 -t0", ""),
    ROW(CLAMP, "with an upper limit alone there is one comparison", 1, INS(WANTS(BF16, 1, 6)),
        AT(.flag = TRUE, .key = "most", .number = 0.7), "bf16[6]", "+o0:12 k:clamp", "i0",
        "+t0:2 +t1:6 k:compare +d0:12i k:where -t1 -t0", ""),
    ROW(CLAMP_BETWEEN, "saves its limits too", 3,
        INS(WANTS(FP16, 1, 6), PLAIN(FP32, 0, 0), PLAIN(FP32, 0, 0)), NO_ATTRIBUTES, "fp16[6]",
        "+o0:12 k:clamp", "i2 i1 i0", "+t0:2 +t1:6 +t2:6 k:compare +d0:12i k:where -t2 -t1 -t0",
        ""),
    ROW(MASKED_FILL, "saves the mask", 2, INS(WANTS(FP32, 2, 6, 4), PLAIN(BOOL, 2, 6, 4)),
        NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:masked_fill", "i1", "+d0:96l k:masked_fill", ""),
    ROW(MEAN, "one number a row; the gradient is spread over the row", 1, INS(WANTS(FP32, 2, 6, 4)),
        AT(.result = PLAIN(FP32, 2, 6, 1)), "fp32[6,1]", "+o0:24 k:mean", "", "+d0:96 k:mean", ""),
    ROW(SUM, "the gradient is the number itself, expanded", 1, INS(WANTS(FP32, 2, 6, 4)),
        AT(.result = PLAIN(FP32, 0, 0)), "fp32[]", "+o0:4 k:sum", "", "d0=view@0x", ""),
    ROW(SUM_ROWS, "one number a column; the gradient is that row, expanded", 1,
        INS(WANTS(FP32, 2, 6, 4)), AT(.result = PLAIN(FP32, 1, 4)), "fp32[4]", "+o0:16 k:sum", "",
        "d0=view@0x", ""),
    ROW(CAT, "gradients are parts of the incoming one", 2,
        INS(WANTS(BF16, 2, 6, 2), WANTS(BF16, 2, 6, 3)), AT(.result = PLAIN(BF16, 2, 6, 5)),
        "bf16[6,5]", "+o0:60 k:cat", "", "d0=view@0 d1=view@2", ""),
    ROW(CAT, "along another dimension: parts begin at its elements", 2,
        INS(WANTS(BF16, 3, 2, 1, 4), WANTS(BF16, 3, 2, 2, 4)),
        AT(.result = PLAIN(BF16, 3, 2, 3, 4), .key = "dim", .number = 1), "bf16[2,3,4]",
        "+o0:48 k:cat", "", "d0=view@0 d1=view@1", ""),
    ROW(CAT_MORE, "further parts go into what is there", 3,
        INS(WANTS(BF16, 3, 2, 6, 4), WANTS(BF16, 3, 2, 1, 4), WANTS(BF16, 3, 2, 2, 4)),
        AT(.number = 1, .first = 3), "bf16[2,6,4]", "o0=i0@0 k:cat", "",
        "d0=g0 d1=view@3 d2=view@4", ""),
    ROW(STACK, "gradients are every second element of the incoming one", 2,
        INS(WANTS(BF16, 2, 6, 2), WANTS(BF16, 2, 6, 2)), AT(.result = PLAIN(BF16, 3, 6, 2, 2)),
        "bf16[6,2,2]", "+o0:48 k:stack", "", "d0=view@0 d1=view@1", ""),
    ROW(PAD, "the gradient is a clone of the part that was not padded", 1,
        INS(WANTS(BF16, 2, 6, 3)), AT(.result = PLAIN(BF16, 2, 6, 8)), "bf16[6,8]",
        "+o0:96 k:constant_pad_nd", "", "+d0:36l k:constant_pad_nd", ""),
    ROW(WHERE, "the number that fills the gradient's holes is a tensor for a moment", 1,
        INS(WANTS(FP32, 2, 6, 4)), NO_ATTRIBUTES, "fp32[6,4]", "+o0:96 k:where", "",
        "+t0:4 +d0:96l k:where -t0", ""),
    /* x[:, [1], :]: gradients are added up by index_put_, whose one index is sorted */
    ROW(INDEX_ONE, "the index is saved; the gradient is zeros of the whole", 2,
        INS(WANTS(BF16, 3, 2, 3, 4), PLAIN(INT64, 1, 1)), AT(.result = PLAIN(BF16, 3, 2, 1, 4)),
        "bf16[2,1,4]", "+o0:16 k:index", "i1",
        "+d0:48 +t0:8 +t1:8 -t0 +t0:8 +t2:8 +t3:8 +t4:1 -t4 k:index_put -t3 -t2 -t0 -t1", ""),
    /* x * 0.5 * (1 + tanh(0.8 x (1 + 0.04 x x))): a tensor for each product, sum and tanh */
    ROW(BLOOM_GELU, "one input is saved, every step of the formula makes a tensor", 1,
        INS(WANTS(BF16, 1, 6)), NO_ATTRIBUTES, "bf16[6]",
        "+t0:12 +t1:12 +t2:12 +t3:12 -t2 +t2:12 -t3 +t3:12 -t2 -t1 +t1:12 -t3 k:bloom_gelu "
        "+t2:12 -t1 +o0:12 k:mul -t2 -t0",
        "i0",
        "+t0:12 +t1:12 +t2:12 -t1 +t1:12 -t2 +t2:12 -t1 -t0 +t0:12 -t2 k:bloom_gelu +t1:12 "
        "+t2:12 +t3:12 -t2 +t2:12 +t4:12 -t2 +t2:12 -t4 +t4:12 -t2 -t3 +t2:12 -t4 -t1 +t1:12 "
        "+t3:12 -t1 +t1:12 -t3 -t2 +d0:12l k:bloom_gelu_backward -t0 -t1",
        ""),
    ROW(DROPOUT, "a mask of a byte an element is saved", 1, INS(WANTS(BF16, 2, 6, 4)),
        NO_ATTRIBUTES, "bf16[6,4] bool[6,4]", "+o1:24 +o0:48 k:native_dropout", "o1",
        "+d0:48l k:native_dropout_backward", ""),
    /* -- matmuls: mat2 before self; addmm's mat1, mat2, self -- */
    ROW(MM, "each factor is saved for the other's gradient; the weight's gradient comes first", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 4, 5)), NO_ATTRIBUTES, "bf16[6,5]",
        "+o0:60 k:mm cublas", "i1 i0", "+d1:40i k:mm cublas +d0:48i k:mm cublas", ""),
    ROW(MM, "a frozen weight: its gradient is not made, the input not saved", 2,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(BF16, 2, 4, 5)), NO_ATTRIBUTES, "bf16[6,5]",
        "+o0:60 k:mm cublas", "i1", "+d0:48i k:mm cublas", ""),
    ROW(MM_UNCOUNTED, "a product like any other", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 4, 5)), NO_ATTRIBUTES, "bf16[6,5]",
        "+o0:60 k:mm cublas", "i1 i0", "+d1:40i k:mm cublas +d0:48i k:mm cublas", ""),
    ROW(ZERO3_LINEAR, "input first, then weight, then the bias's column sums of the incoming", 3,
        INS(WANTS(BF16, 3, 2, 3, 4), WANTS(BF16, 2, 5, 4), WANTS(BF16, 1, 5)), NO_ATTRIBUTES,
        "bf16[2,3,5]", "+o0:60 k:mm cublas k:add", "i2 i1 i0",
        "+d0:48 k:mm cublas +d1:40 k:mm cublas +t0:10 k:sum d2:=t0", ""),
    /* images [2, 3, 4, 4] under a 2 x 2 kernel with stride 2: output [2, 5, 2, 2] */
    ROW(CONVOLUTION, "the gradient is made contiguous for input and weight; rows of it are summed",
        3, INS(PLAIN(BF16, 4, 2, 3, 4, 4), WANTS(BF16, 4, 5, 3, 2, 2), WANTS(BF16, 1, 5)),
        AT(.result = PLAIN(BF16, 4, 2, 5, 2, 2), .flag = TRUE), "bf16[2,5,2,2]",
        "+o0:80 k:convolution k:add", "i0 i1",
        "?t0:80 +d1:120 k:convolution -t0 +t0:10 k:sum d2:=t0", ""),
    ROW(ADDMM, "the bias gets the incoming gradient, summed over its rows", 3,
        INS(WANTS(BF16, 1, 5), WANTS(BF16, 2, 6, 4), WANTS(BF16, 2, 4, 5)), NO_ATTRIBUTES,
        "bf16[6,5]", "+o0:60 k:addmm cublas cublaslt", "i1 i2",
        "+d1:48i k:addmm cublas +d2:40i k:addmm cublas d0=g0", "+t0:10 k:sum d0:=t0"),
    ROW(BADDBMM, "a product, then times alpha, for each factor; the summand is a table", 3,
        INS(PLAIN(BF16, 3, 2, 1, 5), WANTS(BF16, 3, 2, 3, 4), WANTS(BF16, 3, 2, 4, 5)),
        NO_ATTRIBUTES, "bf16[2,3,5]", "+o0:60 k:baddbmm", "i1 i2",
        "+t0:48 k:bmm +d1:48 k:mul -t0 +t0:80 k:bmm +d2:80 k:mul -t0", ""),
    ROW(BMM, "a batch of products", 2, INS(WANTS(BF16, 3, 2, 3, 4), WANTS(BF16, 3, 2, 4, 5)),
        NO_ATTRIBUTES, "bf16[2,3,5]", "+o0:60 k:bmm", "i1 i0", "+d1:80 k:bmm +d0:48 k:bmm", ""),
    /* 3 experts, 6 rows sorted by them, [6, 4] x [3, 4, 5]; 60 bytes a problem, 512 bytes of tensor
     * maps for each of the 132 SMs */
    ROW(GROUPED_MM, "every product has scratch of its own; the weights' gradient comes first", 3,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 3, 3, 4, 5), PLAIN(INT32, 1, 3)), AT(.size = {2}),
        "bf16[6,5]", "+o0:60 +t0:180 +t1:67584 -t1 -t0 k:grouped_mm", "i1 i2 i0",
        "+d1:120 +t0:180 +t1:67584 -t1 -t0 k:grouped_mm +d0:48 +t0:180 +t1:67584 -t1 -t0 "
        "k:grouped_mm",
        ""),
    ROW(GROUPED_MM, "fp32 products run one by one into the result", 3,
        INS(WANTS(FP32, 2, 6, 4), WANTS(FP32, 3, 3, 4, 5), PLAIN(INT32, 1, 3)), AT(.size = {2}),
        "fp32[6,5]", "+o0:120 k:grouped_mm", "i1 i2 i0", "+d1:240 k:grouped_mm +d0:96 k:grouped_mm",
        ""),
    /* -- norms -- */
    ROW(RMS_NORM, "saves input, weight and one fp32 a row", 2,
        INS(WANTS(BF16, 3, 2, 3, 4), WANTS(BF16, 1, 4)), NO_ATTRIBUTES, "bf16[2,3,4] fp32[6]",
        "+o0:48 +o1:24 k:fused_rms_norm", "i0 i1 o1", "+d0:48 +d1:8 ?t0:48 k:rms_norm_backward -t0",
        ""),
    ROW(RMS_NORM, "an input that is not row-major is copied for the time of the kernel", 2,
        INS(VALUE(BF16, TRUE, 2, BY(6, 4), BY(10, 1)), WANTS(BF16, 1, 4)), NO_ATTRIBUTES,
        "bf16[6,4] fp32[6]", "+t0:48 +o0:48 +o1:24 k:fused_rms_norm -t0", "i0 i1 o1",
        "+t0:48 +d0:48 +d1:8 ?t1:48 k:rms_norm_backward -t1 -t0", ""),
    /* 70016 rows of 64: 2188 partial sums of 128 bytes, then a column sum of them.  v = 4, so 16
     * columns of threads and 8 rows of threads (128 = 512 / 4 in all); ceil(2188 / 8) = 274 values
     * a thread; 1 block of 132 * (2048 / 128); min(2112, ceil(274 / 16) = 18) blocks share the
     * output: 4 * 64 * 18 * 16 * 4 bytes of scratch, 4 of semaphores. */
    ROW(RMS_NORM, "many narrow rows: the gain's gradient is summed in two stages", 2,
        INS(WANTS(BF16, 2, 70016, 64), WANTS(BF16, 1, 64)), NO_ATTRIBUTES,
        "bf16[70016,64] fp32[70016]", "+o0:8962048 +o1:280064 k:fused_rms_norm", "i0 i1 o1",
        "+d0:8962048 +d1:128 ?t0:8962048 +t1:280064 k:rms_norm_backward +t2:128 +t3:294912 +t4:4 "
        "-t4 "
        "-t3 k:sum d1:=t2 -t1 -t0",
        ""),
    ROW(RMS_NORM, "many wide rows (2112 on 132 SMs): in one stage", 2,
        INS(WANTS(BF16, 2, 65537, 2112), WANTS(BF16, 1, 2112)), NO_ATTRIBUTES,
        "bf16[65537,2112] fp32[65537]", "+o0:276828288 +o1:262148 k:fused_rms_norm", "i0 i1 o1",
        "+d0:276828288 +d1:4224 ?t0:276828288 k:rms_norm_backward -t0", ""),
    ROW(LAYER_NORM, "saves bias, input, weight, then mean and rstd", 3,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 1, 4), WANTS(BF16, 1, 4)), NO_ATTRIBUTES,
        "bf16[6,4] fp32[6] fp32[6]", "+o0:48 +o1:24 +o2:24 k:native_layer_norm", "i2 i0 i1 o1 o2",
        "+d0:48 +d1:8 +d2:8 ?t0:48 k:layer_norm_backward -t0", ""),
    ROW(LAYER_NORM, "without gain and bias: one gradient", 1, INS(WANTS(FP32, 2, 6, 4)),
        NO_ATTRIBUTES, "fp32[6,4] fp32[6] fp32[6]", "+o0:96 +o1:24 +o2:24 k:native_layer_norm",
        "i0 o1 o2", "+d0:96 ?t0:96 k:layer_norm_backward -t0", ""),
    /* -- look-ups: the three branches of embedding_dense_backward -- */
    ROW(EMBEDDING, "few indices (to 3072) are added into the dense gradient at once", 2,
        INS(WANTS(BF16, 2, 100, 8), PLAIN(INT64, 2, 3, 1024)), NO_ATTRIBUTES, "bf16[3,1024,8]",
        "+o0:49152 k:embedding", "i1", "?t0:49152 +d0:1600 k:embedding_dense_backward -t0", ""),
    ROW(EMBEDDING, "a row of indices that all sequences see is copied for the kernels", 2,
        INS(WANTS(BF16, 2, 100, 8), VALUE(INT64, FALSE, 2, BY(3, 4), BY(0, 1))), NO_ATTRIBUTES,
        "bf16[3,4,8]", "+t0:96 +o0:192 k:embedding -t0", "i1",
        "+t0:96 ?t1:192 +d0:1600 k:embedding_dense_backward -t1 -t0", ""),
    /* T = 4096 indices, V = 100 words: 8 T = 32768; sort 2 * 32768 + 1024 * ceil(4096 / 4608) +
     * 16895 = 83455; unique al(8 * (2 + 32)) + 767 = 1279; m = min(T, V) = 100 segments: 8 m = 800,
     * scan al(16 * (1 + 32)) + 511 = 1279; pieces T / 10 + m = 509 > 4 m, so sums are per segment:
     * 8 * 509 twice, and 4 * 100 * 8. */
    ROW(EMBEDDING, "many indices of few words are sorted; partial sums are per word", 2,
        INS(WANTS(BF16, 2, 100, 8), PLAIN(INT64, 2, 4, 1024)), NO_ATTRIBUTES, "bf16[4,1024,8]",
        "+o0:65536 k:embedding", "i1",
        "?t0:65536 +t1:32768 +t2:32768 +t3:32768 +t4:83455 -t4 -t3 +d0:1600 +t3:32768 +t4:8 "
        "+t5:32768 "
        "+t6:1279 "
        "-t6 -t5 "
        "+t5:800 +t6:800 +t7:1279 -t7 +t7:8 +t8:4072 +t9:4072 +t10:3200 k:embedding_dense_backward "
        "-t10 -t9 "
        "-t8 -t7 -t6 -t5 -t4 -t3 -t2 -t1 -t0",
        ""),
    /* the same with V = 1000: m = 1000, pieces 409 + 1000 < 4 m: one sum a piece, 4 * 1409 * 8;
       scan al(16 * 34) + 511 */
    ROW(EMBEDDING, "many indices of many words: partial sums are per piece", 2,
        INS(WANTS(BF16, 2, 1000, 8), PLAIN(INT64, 2, 4, 1024)), NO_ATTRIBUTES, "bf16[4,1024,8]",
        "+o0:65536 k:embedding", "i1",
        "?t0:65536 +t1:32768 +t2:32768 +t3:32768 +t4:83455 -t4 -t3 +d0:16000 +t3:32768 +t4:8 "
        "+t5:32768 "
        "+t6:1279 "
        "-t6 -t5 "
        "+t5:8000 +t6:8000 +t7:1279 -t7 +t7:8 +t8:11272 +t9:45088 k:embedding_dense_backward -t9 "
        "-t8 -t7 -t6 -t5 -t4 -t3 -t2 -t1 -t0",
        ""),
    /* -- losses -- */
    ROW(LOG_SOFTMAX, "saves its result", 1, INS(WANTS(FP32, 2, 6, 5)), NO_ATTRIBUTES, "fp32[6,5]",
        "+o0:120 k:log_softmax", "o0", "+d0:120 k:log_softmax", ""),
    ROW(LOG_SOFTMAX, "reads a row-major copy of an input that is not", 1,
        INS(VALUE(FP32, TRUE, 2, BY(6, 5), BY(1, 6))), NO_ATTRIBUTES, "fp32[6,5]",
        "+o0:120 +t0:120 k:log_softmax -t0", "o0", "+d0:120 k:log_softmax", ""),
    /* 8 bytes an index: linear indices by remainder and product, sorted with where they came from;
     * one tile of cub's sort needs 1 byte */
    ROW(INDEX, "rows by an index: the gradient is zeros, into which sorted rows are added", 2,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(INT64, 1, 10)), NO_ATTRIBUTES, "bf16[10,4]",
        "+o0:80 k:index", "i1",
        "+d0:48 +t0:80 +t1:80 -t0 +t0:80 +t2:80 +t3:80 +t4:1 -t4 k:index_put -t3 -t2 -t0 -t1", ""),
    /* 5000 indices of 257 rows, whose numbers have 9 bits, two passes: 2 * al(40000) + 1024 *
     * ceil(5000 / 4608) + 2 * 2048 + 511 = 87039 */
    ROW(INDEX, "many indices are sorted by the bits that row numbers have", 2,
        INS(WANTS(BF16, 2, 257, 4), PLAIN(INT64, 1, 5000)), NO_ATTRIBUTES, "bf16[5000,4]",
        "+o0:40000 k:index", "i1",
        "+d0:2056 +t0:40000 +t1:40000 -t0 +t0:40000 +t2:40000 +t3:40000 +t4:87039 -t4 k:index_put "
        "-t3 "
        "-t2 -t0 -t1",
        ""),
    ROW(INDEX, "elements by two indices, whose numbers are added up", 3,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(INT64, 1, 10), PLAIN(INT64, 1, 10)), NO_ATTRIBUTES,
        "bf16[10]", "+o0:20 k:index", "i1 i2",
        "+d0:48 +t0:80 +t1:80 -t0 +t0:80 +t2:80 -t0 -t2 +t0:80 +t2:80 +t3:80 +t4:1 -t4 k:index_put "
        "-t3 -t2 -t0 -t1",
        ""),
    ROW(GATHER, "elements of each row are scattered back", 2,
        INS(WANTS(FP32, 2, 6, 8), PLAIN(INT64, 2, 6, 2)), NO_ATTRIBUTES, "fp32[6,2]",
        "+o0:48 k:gather", "i1", "+d0:192 k:scatter_add", ""),
    ROW(INDEX, "indices of int32 become int64 before they are used", 2,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(INT32, 1, 10)), NO_ATTRIBUTES, "bf16[10,4]",
        "+t0:80 +o0:80 k:index -t0", "i1",
        "+d0:48 +t0:80 +t1:80 +t2:80 -t1 -t0 +t0:80 +t1:80 +t3:80 +t4:1 -t4 k:index_put -t3 -t1 "
        "-t0 "
        "-t2",
        ""),
    ROW(INDEX_PUT, "the first operand, whose own gradient nobody asks for, takes the rows", 3,
        INS(PLAIN(BF16, 2, 6, 4), PLAIN(INT64, 1, 3), WANTS(BF16, 2, 3, 4)), NO_ATTRIBUTES,
        "bf16[6,4]", "o0=i0@0 k:index_put", "i1", "+d2:24 k:index", ""),
    ROW(INDEX_PUT, "indices of int32 become int64 before they are used", 3,
        INS(PLAIN(BF16, 2, 6, 4), PLAIN(INT32, 1, 3), WANTS(BF16, 2, 3, 4)), NO_ATTRIBUTES,
        "bf16[6,4]", "+t0:24 o0=i0@0 k:index_put -t0", "i1", "+t0:24 +d2:24 k:index -t0", ""),
    ROW(INDEX_ADD, "the first operand takes the rows; their gradient is a selection", 3,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(INT64, 1, 3), WANTS(BF16, 2, 3, 4)), NO_ATTRIBUTES,
        "bf16[6,4]", "o0=i0@0 k:index_add", "i1 i2", "d0=g0 +d2:24 k:index_select", ""),
    ROW(TOPK, "values and int64 indices, which are saved", 1, INS(WANTS(FP32, 2, 6, 8)),
        AT(.size = {2}), "fp32[6,2] int64[6,2]", "+o0:48 +o1:96 k:topk", "o1",
        "+d0:192 k:topk_backward", ""),
    ROW(NLL_LOSS, "saves the logarithms, the targets and the total weight", 2,
        INS(WANTS(FP32, 2, 6, 5), PLAIN(INT64, 1, 6)), NO_ATTRIBUTES, "fp32[] fp32[]",
        "+o0:4 +o1:4 k:nll_loss", "i0 i1 o1", "+d0:120 k:nll_loss_backward", ""),
    ROW(NLL_LOSS, "summed up it takes and saves the same", 2,
        INS(WANTS(FP32, 2, 6, 5), PLAIN(INT64, 1, 6)), AT(.flag = TRUE), "fp32[] fp32[]",
        "+o0:4 +o1:4 k:nll_loss", "i0 i1 o1", "+d0:120 k:nll_loss_backward", ""),
    ROW(NLL_LOSS, "of 16-bit logits it is 16-bit", 2, INS(WANTS(BF16, 2, 6, 5), PLAIN(INT64, 1, 6)),
        NO_ATTRIBUTES, "bf16[] bf16[]", "+o0:2 +o1:2 k:nll_loss", "i0 i1 o1",
        "+d0:60 k:nll_loss_backward", ""),
    ROW(FUSED_CROSS_ENTROPY, "saves the logits, and two numbers for each row in fp32", 2,
        INS(WANTS(BF16, 2, 6, 5), PLAIN(INT64, 1, 6)), NO_ATTRIBUTES, "fp32[6] fp32[6]",
        "+o0:24 +o1:24 k:fused_cross_entropy", "i0 o1 i1", "+d0:60 k:fused_cross_entropy_backward",
        ""),
    /* -- attention -- */
    ROW(SOFTMAX, "grad * output is held while the gradient is made", 1, INS(WANTS(FP32, 2, 6, 5)),
        NO_ATTRIBUTES, "fp32[6,5]", "+o0:120 k:softmax", "o0", "+d0:120 +t0:120 -t0 k:softmax", ""),
    ROW(SAFE_SOFTMAX,
        "looks for rows that are masked whole: a byte an element, a byte a row, a zero", 1,
        INS(WANTS(FP32, 2, 6, 5)), NO_ATTRIBUTES, "fp32[6,5]",
        "+o0:120 +t0:30 +t1:6 +t2:4 k:safe_softmax -t2 -t1 -t0", "o0",
        "+d0:120 +t0:120 -t0 k:safe_softmax", ""),
    /* q, k, v [1, 2, 128, 64], made as [1, 128, 2, 64] and seen transposed: 32768 bytes each, 256
     * rows: logsumexp 1024; row sums 4 * 2 * r128(128) = 1024, fp32 dq 65536.  The output is like
     * the query, so row-major as kernels see it: only the gradient may need a copy. */
    ROW(FLASH_ATTENTION,
        "saves key, query, value, then logsumexp, output and the generator's state", 3,
        INS(SEEN(1, 2, 128, 64), SEEN(1, 2, 128, 64), SEEN(1, 2, 128, 64)),
        AT(.batch = 1, .heads = 2, .kv_heads = 2, .length = 128, .head_dim = 64),
        "bf16[1,2,128,64](16384,64,128,1) fp32[256] int64[2] int64[1]",
        "+o0:32768 +o1:1024 +o2:16 +o3:8 k:flash_attention", "i1 i0 i2 o1 o0 o2 o3",
        "?t0:32768 +d0:32768e +d1:32768e +d2:32768e +t1:1024 +t2:65536 k:flash_attention_backward "
        "-t2 -t1 -t0",
        ""),
    /* row-major here, so empty_like of the transposed query is too: heads are outside of tokens,
     * and the kernel wants them inside */
    ROW(FLASH_ATTENTION, "an output that kernels do not see row-major is copied in backward", 3,
        INS(WANTS(BF16, 4, 1, 2, 128, 64), WANTS(BF16, 4, 1, 2, 128, 64),
            WANTS(BF16, 4, 1, 2, 128, 64)),
        AT(.batch = 1, .heads = 2, .kv_heads = 2, .length = 128, .head_dim = 64),
        "bf16[1,2,128,64] fp32[256] int64[2] int64[1]",
        "+o0:32768 +o1:1024 +o2:16 +o3:8 k:flash_attention", "i1 i0 i2 o1 o0 o2 o3",
        "?t0:32768 +t1:32768 +d0:32768e +d1:32768e +d2:32768e +t2:1024 +t3:65536 "
        "k:flash_attention_backward -t3 -t2 -t1 -t0",
        ""),
    /* length 100: row sums 4 * 2 * 128, dq 4 * 128 * 2 * 64: both padded to 128 rows */
    ROW(FLASH_ATTENTION,
        "shared keys: their gradients are made per query head first; rows are padded to 128", 3,
        INS(SEEN(1, 2, 100, 64), SEEN(1, 1, 100, 64), SEEN(1, 1, 100, 64)),
        AT(.batch = 1, .heads = 2, .kv_heads = 1, .length = 100, .head_dim = 64),
        "bf16[1,2,100,64](12800,64,128,1) fp32[200] int64[2] int64[1]",
        "+o0:25600 +o1:800 +o2:16 +o3:8 k:flash_attention", "i1 i0 i2 o1 o0 o2 o3",
        "?t0:25600 +d0:25600e +d1:12800e +d2:12800e +t1:1024 +t2:65536 +t3:25600 +t4:25600 -t4 -t3 "
        "k:flash_attention_backward -t2 -t1 -t0",
        ""),
    ROW(FLASH_ATTENTION, "dropout: the generator's state comes last, after a seed", 3,
        INS(SEEN(1, 2, 128, 64), SEEN(1, 2, 128, 64), SEEN(1, 2, 128, 64)),
        AT(.batch = 1, .heads = 2, .kv_heads = 2, .length = 128, .head_dim = 64, .flag = TRUE),
        "bf16[1,2,128,64](16384,64,128,1) fp32[256] int64[2] int64[1]",
        "+o0:32768 +o1:1024 +t0:16 +o3:8 +o2:16 -t0 k:flash_attention", "i1 i0 i2 o1 o0 o2 o3",
        "?t0:32768 +d0:32768e +d1:32768e +d2:32768e +t1:1024 +t2:65536 k:flash_attention_backward "
        "-t2 -t1 -t0",
        ""),
    /* 8 heads of 64, 1024 tokens: 4 blocks of 256 keys; 8 * 16 = 128 blocks of queries on 264
     * places fill 0.485 of a wave, twice as many 0.97: 2 splits.  4 * 2 * 8192 of logsumexps,
     * 4 * 2 * 8192 * 64 = 4 MiB of outputs. */
    ROW(FLASH_ATTENTION, "too few blocks of queries: keys are split in two", 3,
        INS(SEEN(1, 8, 1024, 64), SEEN(1, 8, 1024, 64), SEEN(1, 8, 1024, 64)),
        AT(.batch = 1, .heads = 8, .kv_heads = 8, .length = 1024, .head_dim = 64),
        "bf16[1,8,1024,64](524288,64,512,1) fp32[8192] int64[2] int64[1]",
        "+o0:1048576 +o1:32768 +t0:65536 +t1:4194304 +o2:16 +o3:8 k:flash_attention -t0 -t1",
        "i1 i0 i2 o1 o0 o2 o3",
        "?t0:1048576 +d0:1048576e +d1:1048576e +d2:1048576e +t1:32768 +t2:2097152 "
        "k:flash_attention_backward -t2 -t1 -t0",
        ""),
    /* q, k, v [1, 2, 100, 64]: logsumexp padded to 128 rows a head; delta 4 * 200; workspace 2 *
     * ceil(100 / 64) tiles of 4 * 64 * 64 + 16.  What the kernel makes has heads inside tokens,
     * whatever order the operands have. */
    ROW(EFFICIENT_ATTENTION, "no generator's state; logsumexp is padded to 32 rows", 3,
        INS(WANTS(BF16, 4, 1, 2, 100, 64), WANTS(BF16, 4, 1, 2, 100, 64),
            WANTS(BF16, 4, 1, 2, 100, 64)),
        AT(.batch = 1, .heads = 2, .kv_heads = 2, .length = 100, .head_dim = 64),
        "bf16[1,2,100,64](12800,64,128,1) fp32[256]", "+o0:25600 +o1:1024 k:efficient_attention",
        "i1 i0 i2 o1 o0",
        "+d0:25600h +d1:25600h +d2:25600h +t0:800 +t1:65600 k:efficient_attention_backward -t0 -t1",
        ""),
    ROW(EFFICIENT_ATTENTION, "a bias that wants a gradient gets one for each sequence and head", 4,
        INS(SEEN(1, 1, 64, 64), SEEN(1, 1, 128, 64), SEEN(1, 1, 128, 64),
            WANTS(BF16, 4, 1, 1, 64, 128)),
        AT(.batch = 1, .heads = 1, .kv_heads = 1, .length = 64, .keys = 128, .head_dim = 64),
        "bf16[1,1,64,64] fp32[64]", "+o0:8192 +o1:256 k:efficient_attention", "i3 i1 i0 i2 o1 o0",
        "+d0:8192h +d1:16384h +d2:16384h +d3:16384 +t0:256 +t1:16400 "
        "k:efficient_attention_backward -t0 -t1",
        ""),
    /* head dim 128: tiles of 128 rows, 4 * 128 * 128 + 16 = 65552, ceil(300 / 128) = 3 a head; an
     * explicit bias is saved before key, query and value.  One head: inside or outside is the same
     * order. */
    ROW(EFFICIENT_ATTENTION, "an explicit mask is saved too", 4,
        INS(SEEN(1, 1, 300, 128), SEEN(1, 1, 300, 128), SEEN(1, 1, 300, 128),
            PLAIN(BF16, 4, 1, 1, 300, 304)),
        AT(.batch = 1, .heads = 1, .kv_heads = 1, .length = 300, .head_dim = 128),
        "bf16[1,1,300,128] fp32[320]", "+o0:76800 +o1:1280 k:efficient_attention",
        "i3 i1 i0 i2 o1 o0",
        "+d0:76800h +d1:76800h +d2:76800h +t0:1200 +t1:196656 k:efficient_attention_backward -t0 "
        "-t1",
        ""),
    /* head dim 256: tiles of 128 queries by 64 keys, 4 * 128 * 64 + 16 = 32784, one block of
     * queries by 256 / 64 = 4 of columns: 131136; dk and dv do not fit in registers: ceil(100 / 64)
     * = 2 splits, 2 * 4 * 2 * 64 * 256 = 262144; 393280 a head.  Forward's output is gathered in
     * fp32 first: 4 * 2 * 100 * 256 = 204800 */
    ROW(EFFICIENT_ATTENTION, "wide heads: dk and dv are accumulated in memory too", 3,
        INS(SEEN(1, 2, 100, 256), SEEN(1, 2, 100, 256), SEEN(1, 2, 100, 256)),
        AT(.batch = 1, .heads = 2, .kv_heads = 2, .length = 100, .head_dim = 256),
        "bf16[1,2,100,256](51200,256,512,1) fp32[256]",
        "+o0:102400 +o1:1024 +t0:204800 k:efficient_attention -t0", "i1 i0 i2 o1 o0",
        "+d0:102400h +d1:102400h +d2:102400h +t0:800 +t1:786560 k:efficient_attention_backward -t0 "
        "-t1",
        ""),
    /* fp32: grad * out 4 * 200 * 64, its sum as [1, 100, 2], the same as [1, 2, 100]; tiles of 64
     * by 64 as for 16 bits */
    ROW(EFFICIENT_ATTENTION, "fp32 kernels leave the row sums to a product and a sum", 3,
        INS(WANTS(FP32, 4, 1, 2, 100, 64), WANTS(FP32, 4, 1, 2, 100, 64),
            WANTS(FP32, 4, 1, 2, 100, 64)),
        AT(.batch = 1, .heads = 2, .kv_heads = 2, .length = 100, .head_dim = 64),
        "fp32[1,2,100,64](12800,64,128,1) fp32[256]", "+o0:51200 +o1:1024 k:efficient_attention",
        "i1 i0 i2 o1 o0",
        "+d0:51200h +d1:51200h +d2:51200h +t0:51200 +t1:800 +t2:800 -t1 -t0 +t0:65600 "
        "k:efficient_attention_backward -t2 -t0",
        ""),
    /* -- no gradient -- */
    ROW(BUFFER, "part of a tensor that is there already", 0, INS(PLAIN(FP32, 1, 1)),
        AT(.result = PLAIN(INT64, 2, 1, 4)), "int64[1,4]", "", "", NULL, NULL),
    ROW(HELD, "a view of all of it", 1, INS(PLAIN(INT64, 2, 6, 4)),
        AT(.result = PLAIN(INT64, 2, 6, 4)), "int64[6,4]", "o0=i0@0", "", NULL, NULL),
    ROW(CREATE, "a new tensor", 0, INS(PLAIN(FP32, 1, 1)), AT(.result = PLAIN(FP32, 2, 6, 4)),
        "fp32[6,4]", "+o0:96 k:create", "", NULL, NULL),
    /* one row of 6: cub's scan, al(8 * (1 + 32)) + 767 */
    ROW(CUMSUM, "flags are cast to int64 first; one row is scanned with scratch", 1,
        INS(PLAIN(BOOL, 1, 6)), NO_ATTRIBUTES, "int64[6]",
        "+o0:48 +t0:48 +t1:1279 -t1 k:cumsum -t0", "", NULL, NULL),
    ROW(CUMSUM, "several rows are scanned without", 1, INS(PLAIN(BOOL, 2, 2, 6)), NO_ATTRIBUTES,
        "int64[2,6]", "+o0:96 +t0:96 k:cumsum -t0", "", NULL, NULL),
    ROW(CUMSUM, "a dtype that is asked for needs no cast; entries of a tile's state are smaller", 1,
        INS(PLAIN(INT32, 1, 6)), AT(.flag = TRUE), "int32[6]", "+o0:24 +t0:1023 -t0 k:cumsum", "",
        NULL, NULL),
    ROW(LEAF, "is its input, which takes a gradient of its own", 1, INS(PLAIN(FP32, 2, 6, 4)),
        NO_ATTRIBUTES, "fp32[6,4]", "o0=i0@0", "", NULL, NULL),
    ROW(HISTC, "counts of a bin each", 1, INS(PLAIN(INT32, 1, 12)),
        AT(.result = PLAIN(INT32, 1, 3)), "int32[3]", "+o0:12 k:histc", "", NULL, NULL),
    ROW(SORT, "a block sorts up to 4096 numbers with their positions", 1,
        INS(PLAIN(INT64, 1, 4096)), NO_ATTRIBUTES, "int64[4096] int64[4096]",
        "+o0:32768 +o1:32768 +t0:32768 k:sort -t0", "", NULL, NULL),
    /* all 64 bits: 2 * al(32776) + 1024 + 8 * 2048 + 511 = 83967 */
    ROW(SORT, "cub sorts more of them", 1, INS(PLAIN(INT64, 1, 4097)), NO_ATTRIBUTES,
        "int64[4097] int64[4097]", "+o0:32776 +o1:32776 +t0:32776 +t1:83967 -t1 k:sort -t0", "",
        NULL, NULL),
    ROW(CUMSUM, "numbers are not cast", 1, INS(PLAIN(FP32, 2, 2, 6)), NO_ATTRIBUTES, "fp32[2,6]",
        "+o0:48 k:cumsum", "", NULL, NULL),
    /* -- given by numbers -- */
    ROW(OPAQUE, "100 bytes kept, 32 of workspace in both directions", 2,
        INS(WANTS(BF16, 2, 6, 4), WANTS(BF16, 1, 9)),
        AT(.result = PLAIN(BF16, 2, 6, 4), .size = {100, 32, 7}), "bf16[6,4] uint8[100]",
        "+o0:48 +o1:100 +t0:32 k:opaque -t0", "o1", "+t0:32 +d1:18 +d0:48 k:opaque_backward -t0",
        ""),
    ROW(OPAQUE, "nothing kept", 1, INS(WANTS(BF16, 2, 6, 4)), AT(.result = PLAIN(BF16, 2, 6, 4)),
        "bf16[6,4] uint8[0]", "+o0:48 k:opaque", "o1", "+d0:48 k:opaque_backward", ""),
    /* -- as they were recorded -- */
    /* 6 * 4 * 2 bytes; 10 bytes kept besides the first operand; grad = grad * (3 * x * x): two
     * temporaries of the operand's size, the second gone before the gradient is there */
    ROW(RECORDED, "a new output, what the node keeps, and its backward's steps", 2,
        INS(WANTS(BF16, 2, 6, 4), PLAIN(BF16, 2, 6, 4)), AT(.recorded = &recorded_cube),
        "bf16[6,4] uint8[10]", "+o0:48 +o1:10 k:cube", "i0 o1",
        "+t0:48 +t1:48 -t1 +d0:48 k:cube -t0", ""),
    ROW(RECORDED, "an output in an operand's memory, whose gradient is passed on", 1,
        INS(WANTS(BF16, 2, 6, 4)), AT(.recorded = &recorded_in_place), "bf16[6,4]", "o0=i0@0", "",
        "d0=g0 k:relu_", ""),
    ROW(RECORDED_CONSTANT, "no node", 1, INS(WANTS(BF16, 2, 6, 4)),
        AT(.recorded = &recorded_in_place), "bf16[6,4]", "o0=i0@0", "", NULL, NULL),
};

#endif
