/* Reads lists of hosts: the value of --hosts, and hostfiles in the forms of Open MPI, DeepSpeed and
 * MPICH. */
#include "launcher/hosts/hosts.h"

#include "base/memory.h"
#include "base/network/network.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX  (CR_HOST_MAX + 32) /* bytes of a word of a list, with its NUL */
#define SLOTS_MAX 65536
#define BYTE_ORDER_MARK "\xef\xbb\xbf" /* what editors of Windows write in front of UTF-8 text */

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

/* Returns true if `text` is an IPv6 address, with or without a zone, as in "fe80::1%eth0". */
static bool is_ipv6(const char *text) {
    char address[CR_NETWORK_TEXT_MAX];
    struct cr_ip ip;
    size_t n = strcspn(text, "%");
    if (n >= sizeof(address)) return false;
    memcpy(address, text, n);
    address[n] = '\0';
    return strchr(address, ':') != NULL && cr_ip_parse(address, &ip) == 0;
}

/* Returns the part of `name` behind "user@", or all of `name` if it has no such beginning. */
static const char *host_of(const char *name) {
    const char *at = strrchr(name, '@');
    return at == NULL ? name : at + 1;
}

/* Returns true if `name` can be the name of a host or an address, with or without "user@" in front
 * of it. A name that begins with '-' is refused, because ssh would read it as an option. */
static bool is_host_name(const char *name) {
    const char *host = host_of(name);
    if (name[0] == '-' || name[0] == '@' || host[0] == '-' || host[0] == '\0') return false;
    for (const char *at = name; *at != '\0'; at++) {
        if (!isalnum((unsigned char) *at) && strchr("._-@:%", *at) == NULL) return false;
    }
    return strchr(name, ':') == NULL || is_ipv6(host);
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

/* Returns the colon in front of the number of slots in `word`, or NULL if there is no such number.
 * A word with several colons is an IPv6 address; if slots follow such an address, it is in
 * brackets. */
static char *slots_colon(char *word) {
    char *bracket = strchr(word, ']'), *first = strchr(word, ':');
    if (bracket != NULL) return bracket[1] == ':' ? bracket + 1 : NULL;
    return first != NULL && strchr(first + 1, ':') == NULL ? first : NULL;
}

/* Removes the brackets of an IPv6 address: "user@[::1]" becomes "user@::1". Returns false if there
 * are brackets around anything else, or only one bracket. */
static bool drop_brackets(char *name) {
    char *host = name + (host_of(name) - name), *end = strchr(host, ']');
    if (strpbrk(name, "[]") == NULL) return true;
    if (host[0] != '[' || end == NULL || end[1] != '\0') return false;
    *end = '\0';
    memmove(host, host + 1, strlen(host));
    return is_ipv6(host);
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
    if (!drop_brackets(copy) || !is_host_name(copy) || strlen(copy) >= sizeof(out->name)) {
        return cr_fail(err, -EINVAL, "'%.200s' is not the name of a host; write HOST or HOST:8, "
                       "with an IPv6 address in brackets: [fd00::1]:8", word);
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

/* Parses a setting that follows the host on its line. "slots=N" sets the slots. "max_slots=N" (Open
 * MPI) and "ifhn=NAME" (MPICH) are accepted and ignored. */
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

/* Parses one line of a hostfile, and appends its host, if there is one, to the list. Changes the
 * line: writes NULs into it. */
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
    size_t mark = strlen(BYTE_ORDER_MARK);
    if (strncmp(text, BYTE_ORDER_MARK, mark) == 0) text += mark;
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

int hosts_refuse_users(const struct hosts_list *list, struct cr_error *err) {
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->items[i].name, *host = host_of(name);
        if (host == name) continue;
        return cr_fail(err, -EINVAL, "'%.200s': a job daemon runs commands as the user who calls "
                       "it; write '%.200s', or use --hosts, which calls ssh", name, host);
    }
    return 0;
}

void hosts_list_done(struct hosts_list *list) {
    free(list->items);
    *list = (struct hosts_list){0};
}
