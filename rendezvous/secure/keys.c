/* Parses token files, and derives the keys of a role in a job from a secret. Pure. */
#include "rendezvous/secure/primitives_internal.h"
#include "rendezvous/secure/secure.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DERIVED "crun-key:" /* how a line with a derived key begins */

/* The salt of all derivations. Because of it, crun's keys differ from those that another program
 * derives from the same secret. */
static const char salt[] = "crun rendezvous 1";

static const struct {
    const char *word;
    enum secure_role role;
} roles[] = {{"member", SECURE_MEMBER}, {"operator", SECURE_OPERATOR}, {"user", SECURE_USER}};

static const char *word_of(enum secure_role role) {
    return roles[role - SECURE_MEMBER].word;
}

/* ---- derivation: HKDF (RFC 5869) with HMAC-SHA-256 ---- */

static void extract(const char *secret, size_t len, uint8_t out[SECURE_KEY]) {
    struct primitive_piece input = {secret, len};
    primitive_hmac(salt, sizeof(salt) - 1, &input, 1, out);
}

static void expand(const uint8_t secret[SECURE_KEY], enum secure_role role, const char *run_id,
                   uint8_t out[SECURE_KEY]) {
    static const uint8_t first = 1;
    const char *word = word_of(role);
    struct primitive_piece pieces[] = {
        {word, strlen(word) + 1}, {run_id, strlen(run_id)}, {&first, 1}};
    primitive_hmac(secret, SECURE_KEY, pieces, 3, out);
}

/* ---- lines of a token file ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads 64 hexadecimal digits. */
static bool read_hex(const char *text, uint8_t out[SECURE_KEY]) {
    for (int i = 0; i < SECURE_KEY; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (uint8_t) (high << 4 | low);
    }
    return true;
}

/* Reads the rest of a line that begins with DERIVED: "ROLE:64 hexadecimal digits:RUN ID". Returns
 * false if it is malformed. */
static bool read_derived(const char *text, size_t len, struct secure_secret *out) {
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        size_t word = strlen(roles[i].word), head = word + 1 + 2 * SECURE_KEY + 1;
        if (len < head || len - head >= SECURE_ID_MAX) continue;
        if (memcmp(text, roles[i].word, word) != 0 || text[word] != ':') continue;
        if (text[head - 1] != ':' || !read_hex(text + word + 1, out->bytes)) return false;
        out->role = roles[i].role;
        memcpy(out->run_id, text + head, len - head);
        out->run_id[len - head] = '\0';
        return out->role == SECURE_OPERATOR || out->run_id[0] != '\0';
    }
    return false;
}

static int read_line(const char *line, size_t len, uint32_t number, struct secure_keys *out,
                     struct cr_error *err) {
    size_t mark = sizeof(DERIVED) - 1;
    if (out->count == SECURE_KEYS_MAX) {
        return cr_fail(err, -EINVAL, "line %u: there are more than %d secrets; remove old ones",
                       number, SECURE_KEYS_MAX);
    }
    struct secure_secret *s = &out->secrets[out->count];
    *s = (struct secure_secret){0};
    if (len >= mark && memcmp(line, DERIVED, mark) == 0) {
        if (!read_derived(line + mark, len - mark, s)) {
            return cr_fail(err, -EINVAL,
                           "line %u: a derived key has the form " DERIVED "ROLE:64 HEXADECIMAL "
                           "DIGITS:JOB; crun-agent key writes it", number);
        }
    } else if (len < SECURE_SECRET_MIN) {
        return cr_fail(err, -EINVAL,
                       "line %u: a secret needs at least %d characters, this one has %zu; make one "
                       "with: openssl rand -hex 32", number, SECURE_SECRET_MIN, len);
    } else {
        extract(line, len, s->bytes);
    }
    out->count++;
    return 0;
}

int secure_keys_parse(const char *text, size_t len, struct secure_keys *out,
                      struct cr_error *err) {
    const char *at = text, *end = text + len;
    memset(out, 0, sizeof(*out));
    for (uint32_t number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t) (end - at));
        const char *stop = newline != NULL ? newline : end;
        const char *next = newline != NULL ? newline + 1 : end;
        while (at < stop && isspace((unsigned char) *at)) at++;
        while (stop > at && isspace((unsigned char) stop[-1])) stop--;
        if (memchr(at, '\0', (size_t) (stop - at)) != NULL) {
            return cr_fail(err, -EINVAL, "line %u: it has a NUL; a secret is text", number);
        }
        if (stop > at && *at != '#') {
            int rc = read_line(at, (size_t) (stop - at), number, out, err);
            if (rc < 0) return rc;
        }
        at = next;
    }
    return out->count > 0 ? 0 : cr_fail(err, -EINVAL, "it has no secret; make one with: openssl "
                                                      "rand -hex 32");
}

/* ---- the keys of a role in a job ---- */

uint32_t secure_keys_for(const struct secure_keys *keys, enum secure_role role, const char *run_id,
                         uint8_t out[SECURE_KEYS_MAX][SECURE_KEY]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < keys->count; i++) {
        const struct secure_secret *s = &keys->secrets[i];
        if (s->role == 0) {
            expand(s->bytes, role, run_id, out[count++]);
        } else if (s->role == role && strcmp(s->run_id, run_id) == 0) {
            memcpy(out[count++], s->bytes, SECURE_KEY);
        }
    }
    return count;
}

void secure_key_of_credential(const uint8_t secret[SECURE_KEY], enum secure_role role,
                              const char *run_id, uint8_t key[SECURE_KEY]) {
    expand(secret, role, run_id, key);
}

const char *secure_keys_operates(const struct secure_keys *keys) {
    const char *found = keys->voucher != NULL ? "" : NULL;
    for (uint32_t i = 0; i < keys->count; i++) {
        const struct secure_secret *s = &keys->secrets[i];
        if (s->role == 0) return "";
        if (s->role == SECURE_OPERATOR && found == NULL) found = s->run_id;
    }
    return found;
}

int secure_key_write(const struct secure_keys *keys, enum secure_role role, const char *run_id,
                     struct cr_buffer *out) {
    uint8_t found[SECURE_KEYS_MAX][SECURE_KEY];
    if (secure_keys_for(keys, role, run_id, found) == 0) return -ENOENT;
    int rc = cr_buffer_printf(out, DERIVED "%s:", word_of(role));
    for (int i = 0; i < SECURE_KEY && rc == 0; i++) rc = cr_buffer_printf(out, "%02x", found[0][i]);
    if (rc == 0) rc = cr_buffer_printf(out, ":%s\n", run_id);
    primitive_wipe(found, sizeof(found));
    return rc;
}
