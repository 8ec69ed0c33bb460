/* The statically linked launchers of candle's kernel library, for builds by the stand-in compiler.
 * Each hands its arguments to the stand-in driver, which does the arithmetic on the host. The
 * sections are chosen by the source file that the compiler was asked for. For tests only. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static __attribute__((unused)) void *driver_function(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *function = driver == NULL ? NULL : dlsym(driver, name);
    if (function == NULL) {
        fprintf(stderr, "the stand-in kernels need the stand-in driver: no `%s` in libcuda.so.1\n", name);
        abort();
    }
    return function;
}

#if defined(STANDIN_mmvq_gguf) || defined(STANDIN_mmq_quantize)
/* Tells the driver that `scratch` now stands for the `rows` × `columns` values at `x`. */
typedef void (*quantize_fn)(const void *x, void *scratch, int64_t columns, int64_t rows,
                            const char *dtype, void *stream);
static void quantize(const void *x, void *scratch, int64_t columns, int64_t rows,
                     const char *dtype, void *stream) {
    static quantize_fn function;
    if (function == NULL) function = (quantize_fn)driver_function("standin_quantize");
    function(x, scratch, columns, rows, dtype, stream);
}
#endif

/* `dst[b][r] = sum_c weights[r][c] * x[b][c]`, with `x` given to the quantiser before. */
typedef void (*matmul_fn)(const char *weights_dtype, const void *weights, const void *scratch,
                          void *dst, const char *dst_dtype, int64_t columns, int64_t rows,
                          int64_t batch, int64_t stride_dst, void *stream);
static __attribute__((unused)) void matmul(const char *weights_dtype, const void *weights,
                                           const void *scratch, void *dst, const char *dst_dtype,
                                           int64_t columns, int64_t rows, int64_t batch,
                                           int64_t stride_dst, void *stream) {
    static matmul_fn function;
    if (function == NULL) function = (matmul_fn)driver_function("standin_quantized_matmul");
    function(weights_dtype, weights, scratch, dst, dst_dtype, columns, rows, batch, stride_dst, stream);
}

#ifdef STANDIN_mmvq_gguf
#define MMVQ(type, out)                                                                          \
    void launch_mmvq_gguf_##type##_##out##_plain(const void *vx, const void *vy, void *dst,     \
                                                 int ncols, int nrows, int stride_y,             \
                                                 int stride_dst, int batch, void *stream) {      \
        (void)stride_y;                                                                          \
        matmul(#type, vx, vy, dst, #out, ncols, nrows, batch, stride_dst, stream);               \
    }
#define MMVQ_ALL(out)                                                                            \
    MMVQ(q4_0, out) MMVQ(q4_1, out) MMVQ(q5_0, out) MMVQ(q5_1, out) MMVQ(q8_0, out)              \
    MMVQ(q2_k, out) MMVQ(q3_k, out) MMVQ(q4_k, out) MMVQ(q5_k, out) MMVQ(q6_k, out)
MMVQ_ALL(bf16) MMVQ_ALL(f16) MMVQ_ALL(f32)

#define MMVQ_QUANTIZE(in)                                                                        \
    void launch_mmvq_gguf_quantize_q8_1_##in(const void *x, void *vy, int kx, int kx_padded,     \
                                             int rows, void *stream) {                           \
        (void)kx_padded;                                                                         \
        quantize(x, vy, kx, rows, #in, stream);                                                  \
    }
MMVQ_QUANTIZE(bf16) MMVQ_QUANTIZE(f16) MMVQ_QUANTIZE(f32)
#endif

#ifdef STANDIN_mmq_quantize
#define MMQ_QUANTIZE(layout)                                                                     \
    void launch_mmq_quantize_q8_1_##layout(const void *x, const int32_t *ids, void *vy,          \
                                           int type_x, int64_t ne00, int64_t s01, int64_t s02,   \
                                           int64_t s03, int64_t ne0, int64_t ne1, int64_t ne2,   \
                                           int64_t ne3, void *stream) {                          \
        (void)ids, (void)type_x, (void)s01, (void)s02, (void)s03, (void)ne0, (void)ne2,          \
            (void)ne3;                                                                           \
        quantize(x, vy, ne00, ne1, "f32", stream);                                               \
    }
MMQ_QUANTIZE(D4) MMQ_QUANTIZE(DS4) MMQ_QUANTIZE(D2S6)
#endif

#define MMQ(type)                                                                                \
    void launch_mmq_gguf_##type(void *fixup, const void *x, const void *y, void *dst,            \
                                int64_t ncols, int64_t nrows, int64_t batch,                     \
                                int64_t stride_x, int64_t stride_dst, int cc, int nsm,           \
                                int64_t smpbo, int warp, void *stream) {                         \
        (void)fixup, (void)stride_x, (void)cc, (void)nsm, (void)smpbo, (void)warp;               \
        matmul(#type, x, y, dst, "f32", ncols, nrows, batch, stride_dst, stream);                \
    }
#ifdef STANDIN_mmq_instance_q4_0
MMQ(q4_0)
#endif
#ifdef STANDIN_mmq_instance_q4_1
MMQ(q4_1)
#endif
#ifdef STANDIN_mmq_instance_q5_0
MMQ(q5_0)
#endif
#ifdef STANDIN_mmq_instance_q5_1
MMQ(q5_1)
#endif
#ifdef STANDIN_mmq_instance_q8_0
MMQ(q8_0)
#endif
#ifdef STANDIN_mmq_instance_q2_k
MMQ(q2_k)
#endif
#ifdef STANDIN_mmq_instance_q3_k
MMQ(q3_k)
#endif
#ifdef STANDIN_mmq_instance_q4_k
MMQ(q4_k)
#endif
#ifdef STANDIN_mmq_instance_q5_k
MMQ(q5_k)
#endif
#ifdef STANDIN_mmq_instance_q6_k
MMQ(q6_k)
#endif

/* The mixture-of-experts kernels allocate within themselves and are not used by the decode path:
 * they exist so that the link succeeds, and stop a program that calls them. */
#define UNUSED_KERNEL(name)                                                                      \
    void name(void) {                                                                            \
        fprintf(stderr, "the stand-in has no `" #name "`\n");                                    \
        abort();                                                                                 \
    }
#ifdef STANDIN_moe_gguf
UNUSED_KERNEL(moe_gemm_gguf)
#endif
#ifdef STANDIN_moe_wmma
UNUSED_KERNEL(moe_gemm_wmma)
#endif
#ifdef STANDIN_moe_wmma_gguf
UNUSED_KERNEL(moe_gemm_gguf_prefill)
#endif
