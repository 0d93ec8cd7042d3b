/* The failures of one round: implements failures.h. */
#include "agent/verdict/failures.h"

#include "base/text/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int64_t failure_time_ns(const struct rendezvous_failure *f) {
    /* these numbers may come from another node and have any value; an unsigned subtraction cannot
     * overflow */
    if (f->offset_error_ns < 0) return f->died_ns;
    return (int64_t) ((uint64_t) f->died_ns - (uint64_t) f->offset_ns);
}

static const char **texts_of(struct rendezvous_failure *f, size_t i) {
    const char **const texts[] = {&f->host,       &f->kind,   &f->what,      &f->message,
                                  &f->last_words, &f->kernel, &f->log_folder};
    return i < sizeof(texts) / sizeof(texts[0]) ? texts[i] : NULL;
}

static void free_texts(struct rendezvous_failure *f) {
    for (size_t i = 0; texts_of(f, i) != NULL; i++) free((char *) *texts_of(f, i));
}

/* Returns a malloc'ed copy of a text, which may come from another host: bytes that are not
 * printable become \xNN. If has_lines, newlines and tabs are kept. Returns NULL if memory is
 * short. */
static char *safe_copy(const char *text, bool has_lines) {
    struct cr_buffer b = {0};
    int rc = text != NULL ? cr_text_append(&b, text, strlen(text), has_lines ? "\n\t" : "") : 0;
    if (rc == 0) rc = cr_buffer_append(&b, "", 1);
    if (rc < 0) cr_buffer_done(&b);
    return b.data;
}

/* Makes *to a copy of *from with texts of its own. Returns 0 or -ENOMEM. */
static int copy(struct rendezvous_failure *to, const struct rendezvous_failure *from) {
    struct rendezvous_failure source = *from;
    int rc = 0;
    *to = *from;
    for (size_t i = 0; texts_of(to, i) != NULL; i++) {
        const char *text = *texts_of(&source, i);
        *texts_of(to, i) = safe_copy(text, text == from->last_words);
        if (*texts_of(to, i) == NULL) rc = -ENOMEM;
    }
    if (rc < 0) free_texts(to);
    return rc;
}

static struct rendezvous_failure *find(struct failures *f, const struct rendezvous_failure *x) {
    for (size_t i = 0; i < f->count; i++) {
        struct rendezvous_failure *own = &f->list[i];
        if (own->rank == x->rank && own->pid == x->pid && strcmp(own->host, x->host) == 0) {
            return own;
        }
    }
    return NULL;
}

static int by_time(const void *a, const void *b) {
    int64_t x = failure_time_ns(a), y = failure_time_ns(b);
    return (x > y) - (x < y);
}

int failures_add(struct failures *f, const struct rendezvous_failure *failure) {
    struct rendezvous_failure *known = find(f, failure), added;
    if (known != NULL && known->kernel[0] == '\0' && failure->kernel[0] != '\0') {
        char *line = safe_copy(failure->kernel, false);
        if (line == NULL) return -ENOMEM;
        free((char *) known->kernel);
        known->kernel = line;
    }
    if (known != NULL) {
        if (known->offset_error_ns < 0) {
            known->offset_ns = failure->offset_ns;
            known->offset_error_ns = failure->offset_error_ns;
        }
        qsort(f->list, f->count, sizeof(*f->list), by_time);
        return 0;
    }
    if (f->count == FAILURES_MAX) {
        f->left_out++;
        return 0;
    }
    struct rendezvous_failure *list = realloc(f->list, (f->count + 1) * sizeof(*list));
    if (list == NULL) return -ENOMEM;
    f->list = list;
    int rc = copy(&added, failure);
    if (rc < 0) return rc;
    f->list[f->count++] = added;
    qsort(f->list, f->count, sizeof(*f->list), by_time);
    return 0;
}

void failures_clear(struct failures *f) {
    for (size_t i = 0; i < f->count; i++) free_texts(&f->list[i]);
    free(f->list);
    *f = (struct failures){0};
}
