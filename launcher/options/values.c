/* Converts the texts of option values, one function for each grammar: implements
 * launcher/options/values.h. */
#include "launcher/options/values.h"

#include "base/memory.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 3.15e9 /* a century in seconds; in milliseconds, the sum of several such times
                            * fits into an int64_t */
#define RANK_MAX    1000000

/* ---- splitting a list, and reading digits ---- */

/* Reads the next item of a comma-separated list: sets *item and *len to the item without the blanks
 * around it, and moves *at to the item after it. Returns 1; or 0 if the list has no more items. */
static int next_item(const char **at, const char **item, size_t *len) {
    if (*at == NULL) return 0;
    const char *start = *at, *comma = strchr(start, ',');
    *at = comma == NULL ? NULL : comma + 1;
    size_t n = comma == NULL ? strlen(start) : (size_t) (comma - start);
    while (n > 0 && isspace((unsigned char) *start)) start++, n--;
    while (n > 0 && isspace((unsigned char) start[n - 1])) n--;
    *item = start;
    *len = n;
    return 1;
}

static void copy_name(char out[VALUE_NAME_MAX], const char *text, size_t len) {
    (void) snprintf(out, VALUE_NAME_MAX, "%.*s", (int) len, text);
}

/* Parses a number without a sign at *at, moves *at to the text after the number, and returns the
 * number. Returns -1 if *at has no digit, or if the number is greater than RANK_MAX. */
static int64_t read_digits(const char **at, const char *end) {
    int64_t value = 0;
    const char *start = *at;
    while (*at < end && isdigit((unsigned char) **at)) {
        value = value * 10 + (**at - '0');
        if (value > RANK_MAX) return -1;
        (*at)++;
    }
    return *at == start ? -1 : value;
}

/* ---- numbers and words ---- */

int value_nnodes(const char *text, uint32_t *min, uint32_t *max, struct cr_error *err) {
    const char *colon = strchr(text, ':');
    int64_t low, high;
    if (colon == NULL) {
        if (cr_parse_i64(text, 1, UINT16_MAX, &low) < 0) goto bad;
        high = low;
    } else {
        char head[16] = "";
        size_t n = (size_t) (colon - text);
        if (n >= sizeof(head)) goto bad;
        memcpy(head, text, n);
        if (cr_parse_i64(head, 1, UINT16_MAX, &low) < 0) goto bad;
        if (cr_parse_i64(colon + 1, low, UINT16_MAX, &high) < 0) goto bad;
    }
    *min = (uint32_t) low;
    *max = (uint32_t) high;
    return 0;
bad:
    return cr_fail(err, -EINVAL,
                   "'%.200s' is not a number of nodes; give N or MIN:MAX with 1 <= MIN <= MAX",
                   text);
}

int value_count(const char *text, const char *what, uint32_t min, uint32_t max, uint32_t *out,
                struct cr_error *err) {
    int64_t value;
    if (cr_parse_i64(text, min, max, &value) < 0) {
        return cr_fail(err, -EINVAL, "'%.200s' is not %s; give a whole number from %u to %u", text,
                       what, min, max);
    }
    *out = (uint32_t) value;
    return 0;
}

int value_size(const char *text, uint64_t *out, struct cr_error *err) {
    static const char units[] = "KMGT";
    char digits[32];
    size_t len = strlen(text);
    int64_t number = 0;
    unsigned shift = 0;
    const char *unit = len > 0 ? strchr(units, toupper((unsigned char) text[len - 1])) : NULL;
    if (unit != NULL && *unit != '\0') {
        shift = 10 * (unsigned) (unit - units + 1);
        len--;
    }
    (void) snprintf(digits, sizeof(digits), "%.*s", (int) (len < 31 ? len : 31), text);
    int bad = cr_parse_i64(digits, 0, INT64_MAX >> shift, &number) < 0;
    *out = (uint64_t) number << shift;
    if (bad || (*out > 0 && *out < VALUE_SIZE_MIN)) {
        return cr_fail(err, -EINVAL,
                       "'%.200s' is not a size; give bytes, at least %d, such as 500K, 100M or 2G; "
                       "or 0 for no limit",
                       text, VALUE_SIZE_MIN);
    }
    return 0;
}

int value_seconds(const char *text, int zero_allowed, int64_t *out_ms, struct cr_error *err) {
    double seconds;
    int bad = cr_parse_double(text, &seconds) < 0 || seconds < 0 || seconds > SECONDS_MAX;
    if (bad || (seconds <= 0 && !zero_allowed)) {
        return cr_fail(err, -EINVAL, "'%.200s' is not a time; give seconds, %s", text,
                       zero_allowed ? "zero or more" : "more than zero");
    }
    *out_ms = (int64_t) (seconds * 1000);
    if (*out_ms == 0 && seconds > 0) *out_ms = 1;
    return 0;
}

int value_word(const char *text, const char *words, struct cr_error *err) {
    size_t len = strlen(text);
    for (const char *at = words; *at != '\0';) {
        size_t n = strcspn(at, " ");
        if (n == len && memcmp(at, text, n) == 0) return 0;
        at += n + (at[n] == ' ');
    }
    return cr_fail(err, -EINVAL, "'%.200s' is not known; choose one of: %s", text, words);
}

/* ---- local ranks ---- */

static int fail_masks(const char *text, struct cr_error *err) {
    return cr_fail(err, -EINVAL,
                   "'%.200s' selects no output; give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), "
                   "or RANK:MASK pairs such as 0:3,1:2",
                   text);
}

int value_stream_masks(const char *text, uint8_t *masks, uint32_t count, struct cr_error *err) {
    if (text[0] >= '0' && text[0] <= '3' && text[1] == '\0') {
        memset(masks, text[0] - '0', count);
        return 0;
    }
    const char *at = text, *item;
    size_t len;
    memset(masks, 0, count);
    while (next_item(&at, &item, &len)) {
        const char *end = item + len;
        int64_t rank = read_digits(&item, end);
        if (rank < 0 || end - item != 2 || item[0] != ':' || item[1] < '0' || item[1] > '3') {
            return fail_masks(text, err);
        }
        if (rank < count) masks[rank] = (uint8_t) (item[1] - '0');
    }
    return 0;
}

int value_local_ranks(const char *text, uint8_t *shown, uint32_t count, struct cr_error *err) {
    const char *at = text, *item;
    size_t len;
    memset(shown, 0, count);
    while (next_item(&at, &item, &len)) {
        const char *end = item + len;
        int64_t rank = read_digits(&item, end);
        if (rank < 0 || item != end) {
            return cr_fail(err, -EINVAL,
                           "'%.200s' is not a list of local ranks; give numbers such as 0,3", text);
        }
        if (rank < count) shown[rank] = 1;
    }
    return 0;
}

/* ---- signals ---- */

static int signal_by_name(const char *name, size_t len) {
    if (len <= 3 || strncmp(name, "SIG", 3) != 0) return 0;
    for (int signum = 1; signum < SIGRTMIN; signum++) {
        const char *known = sigabbrev_np(signum);
        if (known != NULL && strlen(known) == len - 3 && memcmp(known, name + 3, len - 3) == 0) {
            return signum;
        }
    }
    return 0;
}

int value_signals(const char *text, sigset_t *out, char unknown[VALUE_NAME_MAX],
                  struct cr_error *err) {
    const char *at = text, *item;
    size_t len;
    (void) sigemptyset(out);
    unknown[0] = '\0';
    while (next_item(&at, &item, &len)) {
        int signum = signal_by_name(item, len);
        if (signum == SIGKILL || signum == SIGSTOP) {
            return cr_fail(err, -EINVAL, "'%.*s' cannot be handled by any program; leave it out",
                           (int) len, item);
        }
        if (signum != 0) {
            (void) sigaddset(out, signum);
        } else if (unknown[0] == '\0') {
            copy_name(unknown, len == 0 ? "''" : item, len == 0 ? 2 : len);
        }
    }
    return 0;
}

/* ---- filters ---- */

void value_filters(const char *text, char *store, char **items, size_t *count) {
    size_t n = 0;
    while (n < *count) {
        items[n++] = store;
        for (; *text != '\0'; text++) {
            if (*text != ',') {
                *store++ = *text;
            } else if (text[1] == ',') {
                *store++ = *text++;
            } else {
                break;
            }
        }
        *store++ = '\0';
        if (*text == '\0') break;
        text++;
    }
    *count = n;
}

/* ---- --rdzv-conf ---- */

enum conf_kind {
    CONF_SECONDS,         /* time greater than zero */
    CONF_SECONDS_OR_ZERO,
    CONF_COUNT,
    CONF_COUNT_OR_ZERO,
    CONF_PERCENT,         /* count of at most 100, or 0 */
    CONF_LIMIT,           /* count; the field gets count + 1, because 0 in the field means no
                           * limit */
    CONF_BOOL,
    CONF_TEXT,            /* text of at most RENDEZVOUS_ETCD_TEXT_MAX - 1 bytes */
    CONF_PROTOCOL,        /* http or https */
    CONF_AUTH,            /* auto, required, munge or off */
    CONF_ACCEPTED,        /* torchrun accepts this key; crun ignores it */
    CONF_TAKEN,           /* refused, because an option such as --rdzv-id gives this value */
};

static const struct conf_key {
    const char *name;
    enum conf_kind kind;
    size_t offset; /* offset of the field of struct rendezvous_options that gets the value */
} conf_keys[] = {
    {"join_timeout", CONF_SECONDS, offsetof(struct rendezvous_options, join_timeout_ms)},
    {"timeout", CONF_SECONDS, offsetof(struct rendezvous_options, join_timeout_ms)},
    {"last_call_timeout", CONF_SECONDS, offsetof(struct rendezvous_options, last_call_timeout_ms)},
    {"close_timeout", CONF_SECONDS, offsetof(struct rendezvous_options, close_timeout_ms)},
    {"heartbeat_timeout", CONF_SECONDS, offsetof(struct rendezvous_options, heartbeat_timeout_ms)},
    {"keep_alive_interval", CONF_SECONDS,
     offsetof(struct rendezvous_options, keep_alive_interval_ms)},
    {"change_notice", CONF_SECONDS_OR_ZERO, offsetof(struct rendezvous_options, change_notice_ms)},
    {"stop_limit", CONF_SECONDS, offsetof(struct rendezvous_options, stop_limit_ms)},
    {"read_timeout", CONF_SECONDS, offsetof(struct rendezvous_options, read_timeout_ms)},
    {"coordinator_wait", CONF_SECONDS_OR_ZERO,
     offsetof(struct rendezvous_options, coordinator_wait_ms)},
    {"keep_alive_max_attempt", CONF_COUNT,
     offsetof(struct rendezvous_options, keep_alive_max_attempt)},
    {"max_losses", CONF_LIMIT, offsetof(struct rendezvous_options, loss_limit)},
    {"restart_backoff", CONF_SECONDS_OR_ZERO,
     offsetof(struct rendezvous_options, restart_backoff_ms)},
    {"restart_refill", CONF_SECONDS_OR_ZERO,
     offsetof(struct rendezvous_options, restart_refill_ms)},
    {"flap_limit", CONF_COUNT_OR_ZERO, offsetof(struct rendezvous_options, flap_limit)},
    {"flap_window", CONF_SECONDS, offsetof(struct rendezvous_options, flap_window_ms)},
    {"flap_refusal", CONF_SECONDS, offsetof(struct rendezvous_options, flap_refusal_ms)},
    {"aside_after", CONF_COUNT_OR_ZERO, offsetof(struct rendezvous_options, aside_after)},
    {"aside_time", CONF_SECONDS, offsetof(struct rendezvous_options, aside_ms)},
    {"slow_percent", CONF_PERCENT, offsetof(struct rendezvous_options, slow_percent)},
    {"slow_time", CONF_SECONDS, offsetof(struct rendezvous_options, slow_ms)},
    {"slow_notice", CONF_SECONDS_OR_ZERO, offsetof(struct rendezvous_options, slow_notice_ms)},
    {"is_host", CONF_BOOL, offsetof(struct rendezvous_options, is_host)},
    {"relay", CONF_TEXT, offsetof(struct rendezvous_options, relay)},
    {"keep_coordinator", CONF_BOOL, offsetof(struct rendezvous_options, keeps_coordinator)},
    {"protocol", CONF_PROTOCOL, offsetof(struct rendezvous_options, etcd.https)},
    {"ssl_cert", CONF_TEXT, offsetof(struct rendezvous_options, etcd.ssl_cert)},
    {"cert", CONF_TEXT, offsetof(struct rendezvous_options, etcd.ssl_cert)},
    {"ssl_cert_key", CONF_TEXT, offsetof(struct rendezvous_options, etcd.ssl_cert_key)},
    {"key", CONF_TEXT, offsetof(struct rendezvous_options, etcd.ssl_cert_key)},
    {"ca_cert", CONF_TEXT, offsetof(struct rendezvous_options, etcd.ca_cert)},
    {"cacert", CONF_TEXT, offsetof(struct rendezvous_options, etcd.ca_cert)},
    {"user", CONF_TEXT, offsetof(struct rendezvous_options, etcd.user)},
    {"password_file", CONF_TEXT, offsetof(struct rendezvous_options, etcd.password_file)},
    {"etcd_prefix", CONF_TEXT, offsetof(struct rendezvous_options, etcd.prefix)},
    {"auth", CONF_AUTH, offsetof(struct rendezvous_options, auth)},
    {"candidate", CONF_BOOL, offsetof(struct rendezvous_options, etcd.is_candidate)},
    {"store_type", CONF_ACCEPTED, 0}, /* set_conf() accepts only the value "tcp" */
    {"use_libuv", CONF_ACCEPTED, 0},
    {"rank", CONF_ACCEPTED, 0}, /* torchrun ignores this value in favour of --node-rank */
    {"backend", CONF_TAKEN, 0},
    {"endpoint", CONF_TAKEN, 0},
    {"run_id", CONF_TAKEN, 0},
    {"min_nodes", CONF_TAKEN, 0},
    {"max_nodes", CONF_TAKEN, 0},
    {"local_addr", CONF_TAKEN, 0},
};

static const struct conf_key *find_conf_key(const char *name, size_t len) {
    for (size_t i = 0; i < CR_ARRAY_LEN(conf_keys); i++) {
        if (strlen(conf_keys[i].name) == len && memcmp(conf_keys[i].name, name, len) == 0) {
            return &conf_keys[i];
        }
    }
    return NULL;
}

static int set_text(const char *value, char field[RENDEZVOUS_ETCD_TEXT_MAX],
                    struct cr_error *err) {
    if (strlen(value) >= RENDEZVOUS_ETCD_TEXT_MAX) {
        return cr_fail(err, -EINVAL, "the text is too long; give at most %d bytes",
                       RENDEZVOUS_ETCD_TEXT_MAX - 1);
    }
    memcpy(field, value, strlen(value) + 1);
    return 0;
}

static int set_limit(const char *value, uint32_t *limit, struct cr_error *err) {
    int rc = value_count(value, "a count", 0, 1000000, limit, err);
    if (rc == 0) ++*limit;
    return rc;
}

static int set_protocol(const char *value, int *https, struct cr_error *err) {
    int rc = value_word(value, "http https", err);
    if (rc == 0) *https = strcmp(value, "https") == 0;
    return rc;
}

static int set_auth(const char *value, int *auth, struct cr_error *err) {
    int rc = value_word(value, "auto required munge off", err);
    if (rc < 0) return rc;
    *auth = strcmp(value, "required") == 0 ? RENDEZVOUS_AUTH_REQUIRED
            : strcmp(value, "munge") == 0  ? RENDEZVOUS_AUTH_MUNGE
            : strcmp(value, "off") == 0    ? RENDEZVOUS_AUTH_OFF
                                           : RENDEZVOUS_AUTH_AUTO;
    return 0;
}

static int set_conf(const struct conf_key *key, const char *value, struct rendezvous_options *o,
                    struct cr_error *err) {
    void *field = (char *) o + key->offset;
    switch (key->kind) {
    case CONF_SECONDS: return value_seconds(value, 0, field, err);
    case CONF_SECONDS_OR_ZERO: return value_seconds(value, 1, field, err);
    case CONF_COUNT: return value_count(value, "a count", 1, 1000000, field, err);
    case CONF_LIMIT: return set_limit(value, field, err);
    case CONF_PERCENT: return value_count(value, "a percentage", 0, 100, field, err);
    case CONF_COUNT_OR_ZERO: return value_count(value, "a count", 0, 1000000, field, err);
    case CONF_BOOL:
        if (cr_parse_bool(value, field) == 0) return 0;
        return cr_fail(err, -EINVAL, "'%.200s' is neither true nor false", value);
    case CONF_TEXT: return set_text(value, field, err);
    case CONF_PROTOCOL: return set_protocol(value, field, err);
    case CONF_AUTH: return set_auth(value, field, err);
    case CONF_ACCEPTED:
        if (strcmp(key->name, "store_type") != 0 || strcmp(value, "tcp") == 0) return 0;
        return cr_fail(err, -ENOTSUP, "'%.200s' is not available; leave it out, or give tcp",
                       value);
    case CONF_TAKEN: return cr_fail(err, -EINVAL, "it has an option of its own; use that instead");
    }
    return 0;
}

static void trim(const char **text, size_t *len) {
    while (*len > 0 && isspace((unsigned char) **text)) (*text)++, (*len)--;
    while (*len > 0 && isspace((unsigned char) (*text)[*len - 1])) (*len)--;
}

static int read_pair(const char *item, size_t len, struct rendezvous_options *o,
                     char unknown[VALUE_NAME_MAX], struct cr_error *err) {
    const char *equals = memchr(item, '=', len), *key = item;
    size_t key_len = equals == NULL ? len : (size_t) (equals - item);
    trim(&key, &key_len);
    if (key_len == 0) {
        return cr_fail(err, -EINVAL, "'%.*s' has no key; give KEY=VALUE pairs, separated by commas",
                       (int) (len < 200 ? len : 200), item);
    }
    const char *value = equals == NULL ? "" : equals + 1;
    size_t value_len = equals == NULL ? 0 : len - (size_t) (value - item);
    trim(&value, &value_len);
    if (value_len == 0) {
        return cr_fail(err, -EINVAL, "the key '%.*s' has no value; give %.*s=VALUE",
                       (int) (key_len < 200 ? key_len : 200), key,
                       (int) (key_len < 200 ? key_len : 200), key);
    }
    const struct conf_key *known = find_conf_key(key, key_len);
    if (known == NULL) {
        if (unknown[0] == '\0') copy_name(unknown, key, key_len);
        return 0;
    }
    CR_AUTO_FREE char *text = strndup(value, value_len);
    if (text == NULL) return cr_fail(err, -ENOMEM, "no memory left");
    struct cr_error reason = {0};
    int rc = set_conf(known, text, o, &reason);
    return rc < 0 ? cr_fail(err, rc, "%s: %.800s", known->name, reason.text) : 0;
}

/* ---- etcd's endpoints ---- */

/* Removes "http://" or "https://" from the front of *text; if one of them is there, also removes a
 * '/' from the end. Sets *https to 1 if "https://" is removed; otherwise leaves it unchanged.
 * Returns true if one of the two was removed. */
static bool take_scheme(const char **text, size_t *len, int *https) {
    size_t n = 0;
    if (*len >= 7 && memcmp(*text, "http://", 7) == 0) n = 7;
    if (*len >= 8 && memcmp(*text, "https://", 8) == 0) {
        n = 8;
        *https = 1;
    }
    *text += n;
    *len -= n;
    if (*len > 0 && n > 0 && (*text)[*len - 1] == '/') --*len;
    return n > 0;
}

int value_etcd_endpoints(const char *text, struct rendezvous_etcd *etcd, struct cr_error *err) {
    const char *at = text, *item;
    size_t len;
    bool has_http = false, has_https = etcd->https != 0;
    etcd->endpoint_count = 0;
    while (next_item(&at, &item, &len)) {
        int https = 0;
        bool has_scheme = take_scheme(&item, &len, &https);
        has_http |= has_scheme && !https;
        has_https |= https != 0;
        if (etcd->endpoint_count == RENDEZVOUS_ETCD_MEMBERS_MAX) {
            return cr_fail(err, -EINVAL, "'%.200s' has more than %d endpoints; a few are enough",
                           text, RENDEZVOUS_ETCD_MEMBERS_MAX);
        }
        CR_AUTO_FREE char *one = strndup(item, len);
        if (one == NULL) return cr_fail(err, -ENOMEM, "no memory left");
        int rc = cr_endpoint_parse(one, VALUE_ETCD_PORT,
                                   &etcd->endpoints[etcd->endpoint_count++], err);
        if (rc < 0) return rc;
    }
    if (has_http && has_https) {
        return cr_fail(err, -EINVAL, "'%.200s' mixes http and https; use one of them", text);
    }
    etcd->https = has_https;
    return 0;
}

int value_rdzv_conf(const char *text, struct rendezvous_options *options,
                    char unknown[VALUE_NAME_MAX], struct cr_error *err) {
    const char *at = text, *item;
    size_t len;
    unknown[0] = '\0';
    if (text[0] == '\0') return 0;
    while (next_item(&at, &item, &len)) {
        int rc = read_pair(item, len, options, unknown, err);
        if (rc < 0) return rc;
    }
    return 0;
}
