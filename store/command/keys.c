/* crun-store keys: lists the keys of a store, sorted. */
#include "store/command/command_internal.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const struct store_bytes *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n == 0 ? 0 : memcmp(x->data, y->data, n);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

static void print_keys(const struct command_target *target, struct store_list *list) {
    const char *prefix = target->arg_count > 0 ? target->args[0] : "";
    size_t prefix_len = strlen(prefix), shown = 0;
    if (list->count > 0) qsort(list->items, list->count, sizeof(*list->items), compare);
    if (target->json) (void) printf("[");
    for (size_t i = 0; i < list->count; i++) {
        struct store_bytes key = list->items[i];
        if (key.len < prefix_len || memcmp(key.data, prefix, prefix_len) != 0) continue;
        if (target->json) {
            (void) printf("%s", shown++ > 0 ? ", " : "");
            command_put_json(stdout, key);
        } else {
            command_put_text(stdout, key);
            (void) printf("\n");
        }
    }
    if (target->json) (void) printf("]\n");
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct command_target target;
    int status;
    struct store *s = command_begin(command, line, &target, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    struct store_list list = {0};
    int rc = store_list_keys(s, command_time_left_ms(&target), &list, &err);
    if (rc == 0) print_keys(&target, &list);
    store_list_done(&list);
    store_close(s);
    return rc < 0 ? command_fail(&target, &err) : 0;
}

static const struct cr_option options[TARGET_OPTION_COUNT] = TARGET_OPTIONS("10");

const struct cr_command command_keys = {
    .name = "crun-store keys",
    .summary = "list the keys",
    .arguments = "HOST:PORT [PREFIX]",
    .description = "Lists the keys, or those that begin with PREFIX, one per line, sorted.",
    .options = options,
    .option_count = TARGET_OPTION_COUNT,
    .min_arguments = 1,
    .max_arguments = 2,
    .options_end_after = TARGET_OPTIONS_END_AFTER,
    .run = run,
};
