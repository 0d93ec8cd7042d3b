/* Decides whether the facts about a node make it unfit. A node below the limits of these checks
 * cannot run training workers at all. The limits are not stricter, because a check that refuses a
 * healthy node does more harm than one that accepts a sick node. */
#include "agent/health/judge_internal.h"

#include "base/error.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CLOCK_MIN_S     INT64_C(1735689600)      /* the first second of 2025 */
#define SHM_MIN         (UINT64_C(8) << 20)      /* free bytes of /dev/shm */
#define MEMLOCK_MIN     (UINT64_C(64) << 20)     /* bytes; RDMA registers at least so much */
#define FILES_MIN       UINT64_C(64)             /* open files, for a worker in any job */
#define FILES_PER_PEER  UINT64_C(4)              /* further files for each worker of the node */
#define DISK_MIN        (UINT64_C(16) << 20)     /* free bytes of the file system */
#define INODES_MIN      UINT64_C(64)
#define MIB(bytes)      ((bytes) >> 20)

static const char *const words[HEALTH_CHECK_COUNT] = {
#define H(NAME, word) [HEALTH_##NAME] = #word,
    HEALTH_CHECKS(H)
#undef H
};

/* ---- --health-builtin ---- */

/* Returns the bit of the check whose word is the first `len` bytes of `text`, or 0. */
static uint32_t bit_of(const char *text, size_t len) {
    for (unsigned i = 0; i < HEALTH_CHECK_COUNT; i++) {
        if (strlen(words[i]) == len && strncmp(words[i], text, len) == 0) return 1u << i;
    }
    return 0;
}

int health_read_checks(const char *text, uint32_t *mask, struct cr_error *err) {
    *mask = 0;
    if (text[0] == '\0' || strcmp(text, "none") == 0) return 0;
    if (strcmp(text, "all") == 0) {
        *mask = (1u << HEALTH_CHECK_COUNT) - 1;
        return 0;
    }
    for (const char *at = text; *at != '\0'; at += *at == ',' ? 1 : 0) {
        size_t len = strcspn(at, ",");
        uint32_t bit = bit_of(at, len);
        if (bit == 0) {
            return cr_fail(err, -EINVAL,
                           "'%.*s' is no built-in check; give all, none, or some of clock, shm, "
                           "memlock, files, disk, gpu, link, segment, service, with commas between "
                           "them",
                           (int) (len < 60 ? len : 60), at);
        }
        *mask |= bit;
        at += len;
    }
    return 0;
}

/* ---- the checks: each returns whether it passes, and writes the reason if it does not ---- */

static bool check_clock(const struct health_facts *f, char *why) {
    if (f->wall_s >= CLOCK_MIN_S) return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "clock: it is before 2025 (%" PRId64 " s since 1970); set it, or start the "
                    "time service", f->wall_s);
    return false;
}

static bool check_shm(const struct health_facts *f, char *why) {
    if (!f->has_shm) {
        (void) snprintf(why, HEALTH_WHY_MAX,
                        "shm: /dev/shm is missing; data loaders and NCCL need it; mount a tmpfs");
        return false;
    }
    if (f->shm_free >= SHM_MIN) return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "shm: /dev/shm has %" PRIu64 " MiB free, data loaders and NCCL need more; "
                    "remove old files in it, or enlarge it (docker run --shm-size)",
                    MIB(f->shm_free));
    return false;
}

static bool check_memlock(const struct health_facts *f, char *why) {
    if (!f->has_rdma || f->memlock >= MEMLOCK_MIN) return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "memlock: this node has RDMA devices, but only %" PRIu64 " KiB of memory may "
                    "be locked; raise it (ulimit -l unlimited, LimitMEMLOCK=infinity)",
                    f->memlock >> 10);
    return false;
}

static bool check_files(const struct health_facts *f, char *why) {
    uint64_t needed = FILES_MIN + FILES_PER_PEER * f->workers;
    if (f->files >= needed) return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "files: a process may open %" PRIu64 " files, workers need at least %" PRIu64
                    "; raise the limit (ulimit -n)", f->files, needed);
    return false;
}

static bool check_disk(const struct health_facts *f, char *why) {
    if (f->disk_free < DISK_MIN) {
        (void) snprintf(why, HEALTH_WHY_MAX, "disk: %" PRIu64 " MiB are free for '%.100s'; make "
                        "room, or give another --log-dir", MIB(f->disk_free), f->folder);
        return false;
    }
    if (f->inodes_free >= INODES_MIN) return true;
    (void) snprintf(why, HEALTH_WHY_MAX, "disk: %" PRIu64 " more files can be made in '%.100s'; "
                    "remove some, or give another --log-dir", f->inodes_free, f->folder);
    return false;
}

static bool check_gpu(const struct health_facts *f, char *why) {
    if (f->gpu_error[0] != '\0') {
        (void) snprintf(why, HEALTH_WHY_MAX, "gpu: %s", f->gpu_error);
        return false;
    }
    if (f->gpus_of_driver == HEALTH_UNKNOWN || f->gpus_of_nvml == HEALTH_UNKNOWN) return true;
    if (f->gpus_of_nvml >= f->gpus_of_driver) return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "gpu: the driver lists %" PRIu64 " GPUs, and NVML finds %" PRIu64
                    "; look for Xid lines in the kernel log, and reset or replace the missing one",
                    f->gpus_of_driver, f->gpus_of_nvml);
    return false;
}

static bool check_link(const struct health_facts *f, char *why) {
    if (f->link[0] == '\0') return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "link: '%s' is in use and its state is '%s'; check the cable and the switch",
                    f->link, f->link_state);
    return false;
}

static bool check_segment(const struct health_facts *f, char *why) {
    if (f->segment[0] == '\0') return true;
    (void) snprintf(why, HEALTH_WHY_MAX,
                    "segment: the file '%.150s' marks this allocation as unavailable; repair "
                    "the nodes, and then remove the file", f->segment);
    return false;
}

static bool check_service(const struct health_facts *f, char *why) {
    if (!f->service_failed) return true;
    (void) snprintf(why, HEALTH_WHY_MAX, "service: %.200s", f->service_error);
    return false;
}

static bool (*const checks[HEALTH_CHECK_COUNT])(const struct health_facts *f, char *why) = {
    [HEALTH_CLOCK] = check_clock, [HEALTH_SHM] = check_shm, [HEALTH_MEMLOCK] = check_memlock,
    [HEALTH_FILES] = check_files, [HEALTH_DISK] = check_disk, [HEALTH_GPU] = check_gpu,
    [HEALTH_LINK] = check_link, [HEALTH_SEGMENT] = check_segment,
    [HEALTH_SERVICE] = check_service,
};

bool health_judge(const struct health_facts *f, uint32_t mask, char why[HEALTH_WHY_MAX]) {
    why[0] = '\0';
    for (unsigned i = 0; i < HEALTH_CHECK_COUNT; i++) {
        if ((mask & 1u << i) != 0 && !checks[i](f, why)) return false;
    }
    return true;
}
