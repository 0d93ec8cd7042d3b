/* Recognises programs that are not a coordinator: see stranger_internal.h. The bytes of the
 * TCPStore's protocol are those of torch since 2.1. */
#include "rendezvous/dial/stranger_internal.h"

#include "base/memory.h"
#include "rendezvous/protocol/protocol.h"
#include "store/wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FRAME_HEAD 5 /* bytes of a frame's length and type */

/* Two operations of a TCPStore: VALIDATE (0) with its magic number, and PING (13) with the bytes CR
 * LF CR LF as its number. A server of a text protocol takes these four bytes for the end of a line,
 * so that it answers, too. */
static const char question[] = "\x00\xce\xf7\x85\x3c\x0d\r\n\r\n";
static const char echo[] = "\r\n\r\n";

enum stranger_first stranger_first(const char *data, size_t len) {
    /* The first 2 bytes are the upper half of a frame's length. A frame has at most RDZV_FRAME_MAX
     * bytes, so they are 0. */
    for (size_t i = 0; i < len && i < 2; i++) {
        if (data[i] != '\0') return STRANGER_FOREIGN;
    }
    if (len < FRAME_HEAD) return STRANGER_UNDECIDED;
    switch ((unsigned char) data[FRAME_HEAD - 1]) {
    case RDZV_WELCOME: return STRANGER_WELCOME;
    case RDZV_MOVED:
    case RDZV_REFUSED: return STRANGER_REFUSED;
    default: return STRANGER_FOREIGN;
    }
}

int stranger_ask(struct cr_buffer *out) {
    return cr_buffer_append(out, question, sizeof(question) - 1);
}

int stranger_ask_for_torchrun(struct cr_buffer *out, const char *run_id, bool is_old) {
    char key[RDZV_TEXT_MAX + 32];
    (void) snprintf(key, sizeof(key), "torch.rendezvous.%s", run_id);
    struct store_bytes bytes = STORE_BYTES(key);
    const struct store_encoder encoder = {
        .out = out, .dialect = is_old ? STORE_DIALECT_LEGACY : STORE_DIALECT_MODERN,
        .prefix = STORE_BYTES("/")}; /* the client of torch puts a slash before every key */
    return store_encode_keys(&encoder, STORE_OP_CHECK, &bytes, 1);
}

int stranger_ask_for_crun(struct cr_buffer *out) {
    static const char stat[] = {STORE_ADMIN_STAT};
    int rc = cr_buffer_append(out, STORE_ADMIN_MAGIC, STORE_MAGIC_LEN);
    return rc < 0 ? rc : cr_buffer_append(out, stat, sizeof(stat));
}

/* A TCPStore answers CHECK with 0 (READY) if all keys exist, and with 1 (NOT_READY) if not. */
bool stranger_has_torchrun(const char *answer, size_t len) { return len > 0 && answer[0] == 0; }

bool stranger_is_check_answer(const char *answer, size_t len) {
    return len == 1 && (answer[0] == 0 || answer[0] == 1);
}

static bool begins(const char *data, size_t len, const char *with) {
    return len >= strlen(with) && memcmp(data, with, strlen(with)) == 0;
}

bool stranger_is_store(const char *data, size_t len) { return begins(data, len, echo); }

const char *stranger_name(const char *data, size_t len) {
    static const struct {
        const char *begin, *name;
    } known[] = {{"HTTP/", "it speaks HTTP"},   {"SSH-", "it speaks SSH"},
                 {"220", "it speaks SMTP or FTP"}, {"-ERR", "it speaks Redis' protocol"},
                 {"\x15\x03", "it speaks TLS"}, {echo, "it is a TCPStore of torch"}};
    for (size_t i = 0; i < CR_ARRAY_LEN(known); i++) {
        if (begins(data, len, known[i].begin)) return known[i].name;
    }
    return "it speaks another protocol";
}
