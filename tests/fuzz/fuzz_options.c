/* libFuzzer target: the parser of crun's command line, and the function that builds a job from the
 * parsed line. The input is a list of NUL-terminated texts: those that begin with "PET_" or "CUDA_"
 * are the environment, the others are argv. No input must make the program crash, and every refusal
 * must have an error text that fits into its buffer. */
#include "launcher/job.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 64

struct input {
    char *argv[TEXTS_MAX + 2];
    const char *variables[TEXTS_MAX + 1];
    size_t argc, variable_count;
};

static const char *lookup(void *arg, const char *name) {
    const struct input *in = arg;
    size_t n = strlen(name);
    for (size_t i = 0; i < in->variable_count; i++) {
        if (strncmp(in->variables[i], name, n) == 0 && in->variables[i][n] == '=') {
            return in->variables[i] + n + 1;
        }
    }
    return NULL;
}

static uint32_t count_cpus(void *arg) { return (void) arg, 2; }

static int count_gpus(void *arg, const char *visible, uint32_t *count, struct cr_error *err) {
    (void) arg;
    (void) err;
    *count = visible == NULL ? 4 : (uint32_t) strlen(visible) % 8;
    return 0;
}

static int bind_cpus(void *arg, enum numa_mode mode, const char *visible, uint32_t workers,
                     struct cr_cpu_mask *masks, struct cr_error *err) {
    (void) arg;
    if (visible != NULL) return cr_fail(err, -ENODEV, "no GPU");
    for (uint32_t i = 0; i < workers; i++) cr_cpu_add(&masks[i], (uint32_t) mode);
    return 0;
}

static int draw(void *arg, unsigned char out[16]) {
    (void) arg;
    memset(out, 0xa5, 16);
    return 0;
}

static void split(struct input *in, char *text, size_t size) {
    static char name[] = "crun";
    in->argv[in->argc++] = name;
    for (char *at = text, *end = text + size; at < end && in->argc <= TEXTS_MAX;
         at += strlen(at) + 1) {
        int is_variable = strncmp(at, "PET_", 4) == 0 || strncmp(at, "CUDA_", 5) == 0;
        if (!is_variable)
            in->argv[in->argc++] = at;
        else if (in->variable_count < TEXTS_MAX)
            in->variables[in->variable_count++] = at;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = {0};
    struct options options;
    struct cr_error err = {0};
    char *text = malloc(size + 1);
    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    split(&in, text, size);

    const struct job_world world = {.lookup = lookup,
                                    .arg = &in,
                                    .cpu_count = count_cpus,
                                    .gpu_count = count_gpus,
                                    .bind = bind_cpus,
                                    .random = draw};
    int rc = options_parse(in.argv, lookup, &in, &options, &err);
    if (rc == 0 && options.wanted == OPTIONS_RUN) {
        struct job job;
        rc = job_build(&options, &world, &job, &err);
        if (rc == 0 && job.agent.rendezvous.local_world_size == 0) abort();
        job_done(&job);
    }
    if ((rc < 0) != (err.text[0] != '\0')) abort();
    free(text);
    return 0;
}
