/* crun-store keys: what is in a store, in order. */
#include "store/command/command.h"

#include <stdlib.h>
#include <string.h>

static const struct command_shape shape = {
    "keys", "[PREFIX]", "Lists the keys, or those that begin with PREFIX, one a line, in order.",
    0,      1,          10000};

static int compare(const void *a, const void *b) {
    const struct store_bytes *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = n == 0 ? 0 : memcmp(x->data, y->data, n);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

static void print_keys(const struct command_line *line, struct store_list *list) {
    const char *prefix = line->arg_count > 0 ? line->args[0] : "";
    size_t prefix_len = strlen(prefix), shown = 0;
    if (list->count > 0) qsort(list->items, list->count, sizeof(*list->items), compare);
    if (line->json) (void) printf("[");
    for (size_t i = 0; i < list->count; i++) {
        struct store_bytes key = list->items[i];
        if (key.len < prefix_len || memcmp(key.data, prefix, prefix_len) != 0) continue;
        if (line->json) {
            (void) printf("%s", shown++ > 0 ? ", " : "");
            command_put_json(stdout, key);
        } else {
            command_put_text(stdout, key);
            (void) printf("\n");
        }
    }
    if (line->json) (void) printf("]\n");
}

int command_keys(int argc, char **argv) {
    struct command_line line;
    int status;
    struct store *s = command_begin(&shape, argc, argv, &line, &status);
    if (s == NULL) return status;
    struct cr_error err = {0};
    struct store_list list = {0};
    int rc = store_list_keys(s, command_time_left_ms(&line), &list, &err);
    if (rc == 0) print_keys(&line, &list);
    store_list_done(&list);
    store_close(s);
    return rc < 0 ? command_fail(&line, &err) : 0;
}
