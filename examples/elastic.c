/* A job whose processes survive failures: when a worker dies, or a node joins or leaves, the other
 * workers keep their memory and continue.
 *
 *     crun --nproc-per-node=4 --max-restarts=3 build/examples/elastic 200
 *     crun --nproc-per-node=4 --max-restarts=3 build/examples/elastic 200 --kill 1@50
 *
 * Each step adds one all-reduced vector to the model. After a failure or a change all ranks,
 * including those in newly started processes, make a new group and copy the model of the rank that
 * has made most steps. So no checkpoint file is needed as long as one rank survives. When a node
 * leaves (SIGUSR1 to crun), its ranks need not save, because the other ranks have the same model.
 */
#include <crunrt.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIZE 1000

struct job {
    crunrt *rt;
    crunrt_group *world;
    int64_t step, last; /* number of steps made so far; number of steps of the whole training */
    double model[SIZE];
    int pace_ms, kill_rank, start_anew;
    int64_t kill_step;
    int rounds; /* number of rounds in which this process has taken part */
};

static int complain(const char *what) {
    (void) fprintf(stderr, "elastic: %s: %s\n", what, crunrt_last_error());
    return -1;
}

/* Copies the model of the rank that has made most steps to all ranks. On failure this rank's model
 * is unchanged. */
static int take_over(struct job *j) {
    int n = crunrt_group_size(j->world), best = 0;
    double model[SIZE];
    int64_t *steps = calloc((size_t) n, sizeof(*steps));
    if (steps == NULL) return -1;
    int rc = crunrt_group_all_gather(j->world, &j->step, steps, 1, CRUNRT_INT64);
    for (int r = 1; r < n; r++) best = steps[r] > steps[best] ? r : best;
    int64_t step = steps[best];
    free(steps);
    memcpy(model, j->model, sizeof(model));
    if (rc == 0) rc = crunrt_group_broadcast(j->world, model, SIZE, CRUNRT_FLOAT64, best);
    if (rc < 0) return rc;
    memcpy(j->model, model, sizeof(model));
    j->step = step;
    return 0;
}

static int train_one_step(struct job *j) {
    double add[SIZE];
    for (int i = 0; i < SIZE; i++) {
        add[i] = (double) ((j->step * 31 + i * 7) % 101) / crunrt_world_size(j->rt);
    }
    int rc = crunrt_group_all_reduce(j->world, add, add, SIZE, CRUNRT_FLOAT64, CRUNRT_SUM);
    if (rc < 0) return rc;
    for (int i = 0; i < SIZE; i++) j->model[i] += add[i];
    j->step++;
    if (j->pace_ms > 0) {
        (void) nanosleep(&(struct timespec){.tv_sec = j->pace_ms / 1000,
                                            .tv_nsec = j->pace_ms % 1000 * 1000000L},
                         NULL);
    }
    return 0;
}

static void die_if_asked(const struct job *j) {
    if (j->kill_rank != crunrt_rank(j->rt) || j->step != j->kill_step) return;
    if (crunrt_restart_count(j->rt) == 0) (void) raise(SIGKILL);
}

/* Makes steps until the training or the round ends. Returns 0 if all steps of the training are
 * made, or 1 if a failure or a change has ended the round. */
static int run_round(struct job *j) {
    crunrt_change change = CRUNRT_CHANGE_INIT;
    int rc = crunrt_group_new(j->rt, NULL, &j->world);
    if (rc == 0) rc = take_over(j);
    j->rounds++;
    int64_t first = j->step;
    int said = 0;
    while (rc == 0 && j->step < j->last) {
        die_if_asked(j);
        rc = train_one_step(j);
        if (rc == 0) rc = crunrt_step(j->rt, &change);
        if (j->step == first + 1 && !said++) {
            (void) printf("rank %d of %d: round %d of process %d begins at step %lld\n",
                          crunrt_rank(j->rt), crunrt_world_size(j->rt), j->rounds, (int) getpid(),
                          (long long) first);
        }
    }
    if (rc == CRUNRT_CHANGE) {
        (void) printf("rank %d: stops after step %lld: %s\n", crunrt_rank(j->rt),
                      (long long) j->step, change.reason);
    } else if (rc < 0) {
        (void) complain("this round has failed");
    }
    crunrt_group_destroy(j->world);
    j->world = NULL;
    return rc != 0;
}

static int usage(void) {
    (void) fprintf(stderr,
                   "usage: elastic [steps] [--pace-ms N] [--kill RANK@STEP] [--start-anew]\n");
    return -1;
}

static int read_arguments(int argc, char **argv, struct job *j) {
    long long step;
    char more;
    *j = (struct job){.last = 100, .kill_rank = -1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--kill") == 0 && i + 1 < argc) {
            if (sscanf(argv[++i], "%d@%lld%c", &j->kill_rank, &step, &more) != 2) return usage();
            j->kill_step = step;
        } else if (strcmp(argv[i], "--start-anew") == 0) {
            j->start_anew = 1;
        } else if (strcmp(argv[i], "--pace-ms") == 0 && i + 1 < argc) {
            if (sscanf(argv[++i], "%d%c", &j->pace_ms, &more) != 1) return usage();
        } else if (sscanf(argv[i], "%lld%c", &step, &more) == 1) {
            j->last = step;
        } else {
            return usage();
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    struct job j;
    if (read_arguments(argc, argv, &j) < 0) return 2;
    (void) setvbuf(stdout, NULL, _IOLBF, 0);
    if (crunrt_init(NULL, &j.rt) < 0) return complain("cannot start") < 0;
    (void) crunrt_can_rejoin(j.rt, !j.start_anew);
    while (run_round(&j) != 0) {
        if (crunrt_rejoin(j.rt, NULL) < 0) return complain("cannot go on") < 0;
    }
    double sum = 0;
    for (int i = 0; i < SIZE; i++) sum += j.model[i];
    (void) printf("rank %d of %d: process %d, %d rounds, %lld steps, sum %.17g\n",
                  crunrt_rank(j.rt), crunrt_world_size(j.rt), (int) getpid(), j.rounds,
                  (long long) j.step, sum);
    crunrt_destroy(j.rt);
    return 0;
}
