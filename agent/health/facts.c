/* Finds out the facts about this node on which the built-in checks decide. */
#include "agent/health/judge_internal.h"

#include "base/files/read_file.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

/* Returns the number of entries of a folder, or HEALTH_UNKNOWN if it cannot be read. */
static uint64_t count_entries(const char *path) {
    DIR *dir = opendir(path);
    uint64_t count = 0;
    if (dir == NULL) return HEALTH_UNKNOWN;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) count += e->d_name[0] != '.';
    (void) closedir(dir);
    return count;
}

static uint64_t limit_of(int resource) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return HEALTH_UNKNOWN;
    return limit.rlim_cur;
}

static void find_shm(struct health_facts *f) {
    struct statvfs s;
    f->has_shm = statvfs("/dev/shm", &s) == 0;
    if (f->has_shm) f->shm_free = (uint64_t) s.f_bavail * s.f_frsize;
}

static void find_disk(struct health_facts *f) {
    struct statvfs s;
    if (statvfs(f->folder, &s) < 0) return;
    f->disk_free = (uint64_t) s.f_bavail * s.f_frsize;
    if (s.f_files > 0) f->inodes_free = s.f_favail; /* btrfs, for example, counts no inodes */
}

/* ---- the link ---- */

/* Stores the interface and its state in *f if it is down. The state "unknown" counts as up:
 * interfaces that have no link, such as the loopback, have this state. */
static void check_interface(struct health_facts *f, const char *name) {
    char path[128], state[sizeof(f->link_state)];
    (void) snprintf(path, sizeof(path), "/sys/class/net/%.40s/operstate", name);
    if (cr_read_file(path, state, sizeof(state)) <= 0) return;
    state[strcspn(state, "\n")] = '\0';
    if (strcmp(state, "up") == 0 || strcmp(state, "unknown") == 0) return;
    (void) snprintf(f->link, sizeof(f->link), "%.40s", name);
    (void) snprintf(f->link_state, sizeof(f->link_state), "%s", state);
}

/* Stores the InfiniBand or RoCE device and its state in *f if its first port is not active. */
static void check_hca(struct health_facts *f, const char *name) {
    char path[128], state[sizeof(f->link_state)];
    (void) snprintf(path, sizeof(path), "/sys/class/infiniband/%.40s/ports/1/state", name);
    if (cr_read_file(path, state, sizeof(state)) <= 0) return;
    state[strcspn(state, "\n")] = '\0';
    if (strstr(state, "ACTIVE") != NULL) return;
    (void) snprintf(f->link, sizeof(f->link), "%.40s", name);
    (void) snprintf(f->link_state, sizeof(f->link_state), "%s", state);
}

/* Calls `check` for each name in the list that the environment variable has, until a check has
 * found one that is down. Returns false if the variable is not set, is empty, or begins with ^:
 * after ^ it lists what is not used. Names of NCCL_IB_HCA may have a port after a colon. */
static bool check_listed(struct health_facts *f, const char *variable,
                         void (*check)(struct health_facts *f, const char *name)) {
    char list[512], *rest = NULL;
    const char *value = getenv(variable);
    if (value == NULL || value[0] == '\0' || value[0] == '^') return false;
    (void) snprintf(list, sizeof(list), "%s", value[0] == '=' ? value + 1 : value);
    for (char *n = strtok_r(list, ",", &rest); n != NULL; n = strtok_r(NULL, ",", &rest)) {
        n[strcspn(n, ":")] = '\0';
        if (f->link[0] == '\0') check(f, n);
    }
    return true;
}

/* Writes the name of the interface that has the address to `out`; "" if none has. */
static void find_by_address(const char *addr, char out[IF_NAMESIZE]) {
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];
    out[0] = '\0';
    if (getifaddrs(&all) < 0) return;
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
        const void *bytes = NULL;
        if (i->ifa_addr == NULL) continue;
        const void *any = i->ifa_addr;
        const struct sockaddr_in *in = any;
        const struct sockaddr_in6 *in6 = any;
        int family = i->ifa_addr->sa_family;
        if (family == AF_INET) bytes = &in->sin_addr;
        if (family == AF_INET6) bytes = &in6->sin6_addr;
        if (bytes == NULL || inet_ntop(family, bytes, text, sizeof(text)) == NULL) continue;
        if (strcmp(text, addr) == 0) (void) snprintf(out, IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(all);
}

/* Writes the name of the interface of the default route to `out`; "" if there is none. In
 * /proc/net/route each line after the first begins with the interface and the destination, which is
 * 00000000 for the default route. */
static void find_default_route(char out[IF_NAMESIZE]) {
    char text[4096], name[IF_NAMESIZE], *rest = NULL;
    unsigned destination;
    out[0] = '\0';
    if (cr_read_file("/proc/net/route", text, sizeof(text)) <= 0) return;
    (void) strtok_r(text, "\n", &rest);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL;) {
        if (sscanf(line, "%15s %8x", name, &destination) != 2 || destination != 0) continue;
        (void) snprintf(out, IF_NAMESIZE, "%s", name);
        return;
    }
}

static void find_link(struct health_facts *f, const char *addr) {
    char name[IF_NAMESIZE];
    bool is_listed = check_listed(f, "NCCL_SOCKET_IFNAME", check_interface);
    if (check_listed(f, "GLOO_SOCKET_IFNAME", check_interface)) is_listed = true;
    (void) check_listed(f, "NCCL_IB_HCA", check_hca);
    if (is_listed || f->link[0] != '\0') return;
    if (addr[0] != '\0') find_by_address(addr, name);
    else find_default_route(name);
    if (name[0] != '\0') check_interface(f, name);
}

/* ---- the segment ---- */

/* Stores in *f the file that marks this node's Slurm allocation as unavailable, if there is one.
 * Such files have the names of NVRx's segment health check: segment_health_check.ARRAY.TASK for a
 * task of a job array, segment_health_check.JOB.JOB for another job. Only a regular file that is
 * not empty counts. A file that stat() cannot read does not make the node unfit, because the folder
 * may be on a file system that cannot be reached for a moment. */
static void find_segment(struct health_facts *f) {
    const char *job = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID");
    char path[4096];
    struct stat s;
    if (job == NULL || task == NULL) job = task = getenv("SLURM_JOB_ID");
    if (f->segments[0] == '\0' || job == NULL) return;
    int len = snprintf(path, sizeof(path), "%s/segment_health_check.%.30s.%.30s", f->segments, job,
                       task);
    if (len < 0 || (size_t) len >= sizeof(path) || stat(path, &s) < 0) return;
    if (!S_ISREG(s.st_mode) || s.st_size == 0) return;
    (void) snprintf(f->segment, sizeof(f->segment), "%.199s", path);
}

void health_find(struct health_facts *f, uint32_t mask, const char *addr) {
    f->wall_s = time(NULL);
    f->has_rdma = count_entries("/sys/class/infiniband") - 1 < HEALTH_UNKNOWN - 1;
    f->files = limit_of(RLIMIT_NOFILE);
    f->memlock = limit_of(RLIMIT_MEMLOCK);
    f->shm_free = f->disk_free = f->inodes_free = HEALTH_UNKNOWN;
    f->gpus_of_driver = f->gpus_of_nvml = HEALTH_UNKNOWN;
    if ((mask & 1u << HEALTH_SHM) != 0) find_shm(f);
    if ((mask & 1u << HEALTH_DISK) != 0) find_disk(f);
    if ((mask & 1u << HEALTH_LINK) != 0) find_link(f, addr);
    if ((mask & 1u << HEALTH_SEGMENT) != 0) find_segment(f);
    if ((mask & 1u << HEALTH_SERVICE) != 0) health_ask_service(f);
    if ((mask & 1u << HEALTH_GPU) == 0) return;
    f->gpus_of_driver = count_entries("/proc/driver/nvidia/gpus");
    health_ask_nvml(f);
}
