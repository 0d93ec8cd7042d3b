/* Reads lists of hosts: the text of --hosts, and hostfiles in the forms of Open MPI, DeepSpeed and
 * MPICH. */
#include "launcher/hosts/hosts.h"

#include "base/memory.h"
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX  (CR_HOST_MAX + 32) /* bytes of a word of a list, with its NUL */
#define SLOTS_MAX 65536

static struct hosts_entry *find(struct hosts_list *list, const char *name) {
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) return &list->items[i];
    }
    return NULL;
}

static int add(struct hosts_list *list, const struct hosts_entry *entry, struct cr_error *err) {
    struct hosts_entry *known = find(list, entry->name);
    if (known != NULL) {
        /* In Open MPI's files, each line without slots adds one slot to its host. */
        known->slots = (known->slots == 0 ? 1 : known->slots) +
                       (entry->slots == 0 ? 1 : entry->slots);
        return 0;
    }
    if (list->count == HOSTS_MAX) return cr_fail(err, -E2BIG, "more than %d hosts", HOSTS_MAX);
    struct hosts_entry *items = realloc(list->items, (list->count + 1) * sizeof(*items));
    if (items == NULL) return cr_fail(err, -ENOMEM, "no memory left for the list of hosts");
    list->items = items;
    items[list->count++] = *entry;
    return 0;
}

/* Returns whether `name` can be a host; "user@" may stand in front of the host. Refuses a name that
 * begins with '-', because ssh would take it for an option. */
static bool is_host_name(const char *name) {
    if (name[0] == '-' || name[0] == '\0') return false;
    for (const char *at = name; *at != '\0'; at++) {
        if (!isalnum((unsigned char) *at) && strchr("._-@:%", *at) == NULL) return false;
    }
    return name[strlen(name) - 1] != '@';
}

static int read_slots(const char *text, const char *word, uint32_t *out, struct cr_error *err) {
    int64_t slots = 0;
    if (cr_parse_i64(text, 1, SLOTS_MAX, &slots) < 0) {
        return cr_fail(err, -EINVAL, "'%.200s': '%.50s' is not a number of workers; write HOST:8",
                       word, text);
    }
    *out = (uint32_t) slots;
    return 0;
}

/* Returns the colon in front of the slots in `word`, or NULL if there are no slots. A word with
 * several colons is an IPv6 address; with slots, such an address stands in brackets. */
static char *slots_colon(char *word) {
    char *bracket = strchr(word, ']'), *first = strchr(word, ':');
    if (bracket != NULL) return bracket[1] == ':' ? bracket + 1 : NULL;
    return first != NULL && strchr(first + 1, ':') == NULL ? first : NULL;
}

/* Removes the brackets of an IPv6 address: "user@[::1]" becomes "user@::1". */
static void drop_brackets(char *name) {
    char *to = name;
    for (const char *at = name; *at != '\0'; at++) {
        if (*at != '[' && *at != ']') *to++ = *at;
    }
    *to = '\0';
}

/* Parses "HOST" or "HOST:N". */
static int read_word(const char *word, struct hosts_entry *out, struct cr_error *err) {
    char copy[WORD_MAX];
    *out = (struct hosts_entry){0};
    if (strlen(word) >= sizeof(copy)) {
        return cr_fail(err, -ENAMETOOLONG, "'%.100s...' is too long for the name of a host", word);
    }
    (void) snprintf(copy, sizeof(copy), "%s", word);
    char *colon = slots_colon(copy);
    if (colon != NULL) {
        int rc = read_slots(colon + 1, word, &out->slots, err);
        if (rc < 0) return rc;
        *colon = '\0';
    }
    drop_brackets(copy);
    if (!is_host_name(copy) || strlen(copy) >= sizeof(out->name)) {
        return cr_fail(err, -EINVAL, "'%.200s' is not the name of a host; write HOST or HOST:8",
                       word);
    }
    memcpy(out->name, copy, strlen(copy) + 1);
    return 0;
}

int hosts_read_list(const char *text, struct hosts_list *list, struct cr_error *err) {
    char word[WORD_MAX];
    struct hosts_entry entry;
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        if (n >= sizeof(word)) return cr_fail(err, -EINVAL, "the name of a host is too long");
        memcpy(word, at, n);
        word[n] = '\0';
        int rc = read_word(word, &entry, err);
        if (rc == 0) rc = add(list, &entry, err);
        if (rc < 0) return rc;
        at += n;
        if (*at == '\0') return 0;
    }
}

/* ---- hostfiles ---- */

/* Parses a word after the host: "slots=N" gives the slots. "max_slots=N" of Open MPI and
 * "ifhn=NAME" of MPICH have no effect. */
static int read_setting(const char *word, struct hosts_entry *entry, struct cr_error *err) {
    const char *value = strchr(word, '=');
    size_t n = value == NULL ? 0 : (size_t) (value - word);
    if (n == 5 && strncmp(word, "slots", n) == 0) {
        return read_slots(value + 1, word, &entry->slots, err);
    }
    static const char *const ignored[] = {"max_slots", "max-slots", "ifhn"};
    for (size_t i = 0; i < CR_ARRAY_LEN(ignored); i++) {
        if (n == strlen(ignored[i]) && strncmp(word, ignored[i], n) == 0) return 0;
    }
    return cr_fail(err, -EINVAL, "'%.100s' is not known; write 'HOST slots=8' or 'HOST:8'", word);
}

/* Parses one line, which may be empty, and appends its host to the list. Writes NULs into the
 * line. */
static int read_line(char *line, struct hosts_list *list, struct cr_error *err) {
    static const char blanks[] = " \t\r";
    struct hosts_entry entry;
    char *rest = NULL;
    line[strcspn(line, "#")] = '\0';
    char *word = strtok_r(line, blanks, &rest);
    if (word == NULL) return 0;
    int rc = read_word(word, &entry, err);
    while (rc == 0 && (word = strtok_r(NULL, blanks, &rest)) != NULL) {
        rc = read_setting(word, &entry, err);
    }
    return rc < 0 ? rc : add(list, &entry, err);
}

int hosts_read_file(const char *text, struct hosts_list *list, struct cr_error *err) {
    char line[1024];
    unsigned number = 1;
    for (const char *at = text; *at != '\0'; number++) {
        size_t n = strcspn(at, "\n");
        if (n >= sizeof(line)) {
            return cr_fail(err, -EINVAL, "line %u has more than %zu bytes", number,
                           sizeof(line) - 1);
        }
        memcpy(line, at, n);
        line[n] = '\0';
        int rc = read_line(line, list, err);
        if (rc < 0) return cr_wrap(err, "line %u", number);
        at += n + (at[n] == '\n');
    }
    return 0;
}

void hosts_list_done(struct hosts_list *list) {
    free(list->items);
    *list = (struct hosts_list){0};
}
