/* The messages between the starter and deputies, as bytes. Pure.
 *
 * The first line that a deputy prints is its greeting: "crun-deputy PROTOCOL VERSION\n". Text
 * before this line comes from the host's shell, whose profile may print something. After the
 * greeting, all bytes in both directions are frames:
 *
 *     bytes 0-3   number of bytes that follow, big endian
 *     byte  4     type, enum hosts_message
 *     bytes 5-8   number of the host that the message concerns, big endian
 *     then        the payload
 *
 * A payload consists of values of these kinds. A number has 4 bytes, big endian. A text is a
 * number, which is its length without its NUL, followed by its bytes and the NUL. A list is a
 * number, followed by this many texts. */
#ifndef LAUNCHER_HOSTS_MESSAGE_H
#define LAUNCHER_HOSTS_MESSAGE_H

#include "base/buffer.h"
#include "base/network/endpoint.h"
#include "launcher/hosts/hosts.h"
#include "launcher/hosts/tree_internal.h"

#define HOSTS_PROTOCOL    2
#define HOSTS_GREETING    "crun-deputy"
#define HOSTS_HEADER      9                   /* bytes of a frame in front of its payload */
#define HOSTS_PAYLOAD_MAX ((size_t) 16 << 20) /* in bytes; a plan is the longest payload */
#define HOSTS_DATA_MAX    ((size_t) 64 << 10) /* largest number of bytes in one HOSTS_INPUT,
                                               * HOSTS_OUT or HOSTS_ERR */

enum hosts_message {
    /* ---- down ---- */
    HOSTS_PLAN = 1, /* struct hosts_plan; the first frame */
    HOSTS_GO,       /* struct hosts_go: start the launcher */
    HOSTS_INPUT,    /* bytes for the launcher's stdin; no bytes mean the end of stdin */
    HOSTS_SIGNAL,   /* number: send this signal to the launcher */
    HOSTS_SIZE,     /* number: size of the pseudo terminal, 65536 times its rows plus its columns */

    /* ---- up ---- */
    HOSTS_READY, /* text: the host's own address or ""; number: a free port. The host waits for
                  * HOSTS_GO */
    HOSTS_OUT,   /* bytes from the launcher's stdout */
    HOSTS_ERR,   /* bytes from the launcher's stderr, or from ssh's stderr */
    HOSTS_ENDED, /* number: exit status of the launcher; 128 + signal if a signal has ended it */
    HOSTS_TAKEN, /* number of bytes of HOSTS_INPUT that the launcher's stdin has taken */
    HOSTS_LOST   /* bytes of a text: why the deputy could not be started, or how the link to it
                  * has ended */
};

/* What a deputy must know about the job. If a plan was decoded, its texts point into the
 * payload. */
struct hosts_plan {
    struct hosts_range range; /* this deputy's hosts; the first one is its own */
    const char *const *names; /* [range.count]: the hosts */
    /* [range.count]: value of --nproc-per-node on each host; "" if the option is left out there */
    const char *const *workers;
    uint32_t max_nodes;
    uint32_t input_host; /* the host whose launcher gets the starter's input */
    uint32_t fan_out;
    uint32_t copies_crun; /* 1 if crun is copied to hosts that do not have it */
    uint32_t has_pty;     /* 1 if the launcher of input_host gets a pseudo terminal */
    uint32_t pty_size;    /* its size at the start, as in HOSTS_SIZE */
    const char *folder; /* working directory of the launcher */
    const char *crun;   /* path of the starter's crun; each host first tries this path */
    const char *conf;
    const char *const *rsh;
    const char *const *options;
    const char *const *program;
    const char *const *variables;
    const void *secret;
    size_t secret_len;
};

struct hosts_go {
    uint32_t hosting;           /* the host that hosts the rendezvous */
    char endpoint[CR_HOST_MAX + 16]; /* HOST:PORT; "" if the options have it */
};

/* Each of these functions appends one frame to `out`. They return 0; -E2BIG if the payload would
 * exceed HOSTS_PAYLOAD_MAX; or -ENOMEM. */
int hosts_put_bytes(struct cr_buffer *out, enum hosts_message type, uint32_t host,
                    const void *data, size_t len);
int hosts_put_number(struct cr_buffer *out, enum hosts_message type, uint32_t host,
                     uint32_t number);
int hosts_put_ready(struct cr_buffer *out, uint32_t host, const char *address, uint32_t port);
int hosts_put_go(struct cr_buffer *out, const struct hosts_go *go);
/* Appends a frame with `plan`, reduced to the hosts of `range`, which lies within plan->range.
 * Returns as the functions above. */
int hosts_put_plan(struct cr_buffer *out, const struct hosts_plan *plan, struct hosts_range range);

/* A frame that has arrived. */
struct hosts_frame {
    enum hosts_message type;
    uint32_t host;
    const char *data; /* the payload */
    size_t len;
};

/* Reads the frame at the start of data[0..len) into *out. Returns the size of the frame in bytes, 0
 * if the frame is not complete yet, or -EPROTO if the bytes are no frame. */
int64_t hosts_get_frame(const char *data, size_t len, struct hosts_frame *out);

/* Each of these functions decodes the payload of a frame. They return 0; -EPROTO if the payload has
 * another form; or -ENOMEM. */
int hosts_get_number(const struct hosts_frame *frame, uint32_t *out);
int hosts_get_ready(const struct hosts_frame *frame, char address[CR_HOST_MAX], uint32_t *port);
int hosts_get_go(const struct hosts_frame *frame, struct hosts_go *out);
/* Decodes a plan. The texts of *out point into frame->data; hosts_plan_done() frees the lists. */
int hosts_get_plan(const struct hosts_frame *frame, struct hosts_plan *out);
void hosts_plan_done(struct hosts_plan *plan);

/* The result of hosts_read_greeting(). */
enum hosts_greeting { HOSTS_NO_GREETING, HOSTS_NEEDS_CRUN, HOSTS_HAS_CRUN, HOSTS_GREETS };

/* Returns what a line means that came on the stdout of ssh before the first frame: it may be a
 * deputy's greeting; or the script that copies crun may have printed it to say whether the copy
 * exists. If it is a greeting, sets *protocol, and sets *version to the part of the line that is
 * the version. */
enum hosts_greeting hosts_read_greeting(const char *line, uint32_t *protocol,
                                        const char **version);

#endif
