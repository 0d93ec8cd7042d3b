/* Data-parallel training that survives a crash: a small neural network learns handwritten digits.
 *
 *     crun --standalone --nproc-per-node=4 --max-restarts=1 \
 *         build/examples/train_digits --checkpoint digits.ckpt --crash-at 150
 *
 * Every rank has a copy of the whole network. Each rank computes the gradient of its share of each
 * mini-batch, an all-reduce adds the gradients, and every rank updates its weights in the same way.
 * Every few steps rank 0 writes a checkpoint. After a failure all ranks are started again and
 * resume from the last checkpoint.
 *
 * The images of step N depend only on N, and the all-reduce adds in the same order in every run. So
 * with the same number of ranks, a run with a crash ends with exactly the same weights as a run
 * without one. The hash in the last line of the output shows this. */
#include <crunrt.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IMAGE_COUNT = 1797, PIXELS = 64, HIDDEN = 48, DIGITS = 10, HELD_OUT_EVERY = 6 };
enum { HELD_OUT_COUNT = (IMAGE_COUNT + HELD_OUT_EVERY - 1) / HELD_OUT_EVERY };
enum { TRAIN_COUNT = IMAGE_COUNT - HELD_OUT_COUNT };

struct image {
    float pixels[PIXELS]; /* brightness, 0 … 1 */
    int digit;
};

/* All weights in one block of memory, so that one all-reduce and one write() handle all of them. */
struct network {
    float w1[HIDDEN][PIXELS], b1[HIDDEN];
    float w2[DIGITS][HIDDEN], b2[DIGITS];
};

enum { WEIGHTS = sizeof(struct network) / sizeof(float) };

struct options {
    const char *data, *checkpoint;
    long steps, batch, checkpoint_every, crash_at, crash_rank;
    float learning_rate;
};

static struct image train[TRAIN_COUNT], held_out[HELD_OUT_COUNT];

/* ---- failing ---- */

/* Reports the failure on stderr and to the launcher, and ends the process. */
static void fail(const char *what, const char *why) {
    char text[1200];
    (void) snprintf(text, sizeof(text), "%s: %s", what, why);
    fprintf(stderr, "train_digits: %s\n", text);
    (void) crunrt_report_error(text, NULL);
    exit(1);
}

static void fail_at(const char *what, const char *path, const char *why) {
    char text[PATH_MAX];
    (void) snprintf(text, sizeof(text), "%s '%.800s'", what, path);
    fail(text, why);
}

/* ---- data ---- */

static FILE *open_data(const char *path) {
    if (path != NULL) return fopen(path, "r");
    FILE *f = fopen("examples/data/digits.csv", "r");
    if (f != NULL) return f;
    /* path of examples/data, found from the path of this program, which is in build/examples */
    char beside[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", beside, PATH_MAX);
    if (n < 0) return NULL;
    beside[n] = '\0';
    char *slash = strrchr(beside, '/');
    strcpy(slash, "/../../examples/data/digits.csv");
    return fopen(beside, "r");
}

static int read_image(FILE *f, struct image *out) {
    int value;
    for (int i = 0; i < PIXELS; i++) {
        if (fscanf(f, "%d,", &value) != 1 || value < 0 || value > 16) return -1;
        out->pixels[i] = (float) value / 16.0f;
    }
    return fscanf(f, "%d", &out->digit) == 1 && out->digit >= 0 && out->digit < DIGITS ? 0 : -1;
}

static void load_data(const char *path) {
    FILE *f = open_data(path);
    if (path == NULL) path = "examples/data/digits.csv";
    if (f == NULL) {
        fail_at("open the images", path, "no such file that can be read; give --data FILE");
    }
    int trained = 0, held = 0;
    for (int i = 0; i < IMAGE_COUNT; i++) {
        struct image *to = i % HELD_OUT_EVERY == 0 ? &held_out[held++] : &train[trained++];
        if (read_image(f, to) < 0) fail_at("read the images", path, "damaged, or no such data");
    }
    (void) fclose(f);
}

/* ---- random numbers ----
 *
 * mix(n) returns the n-th random number as a function of n alone, so a checkpoint need not contain
 * a generator's state. */

static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Computes the order of the images in one epoch, which depends on the epoch's number alone. */
static void shuffle(uint64_t epoch, uint16_t order[TRAIN_COUNT]) {
    for (int i = 0; i < TRAIN_COUNT; i++) order[i] = (uint16_t) i;
    for (int i = TRAIN_COUNT - 1; i > 0; i--) {
        int j = (int) (mix(epoch << 32 | (uint64_t) i) % (uint64_t) (i + 1));
        uint16_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void init_network(struct network *net) {
    float *w = (float *) net;
    memset(net, 0, sizeof(*net));
    for (int i = 0; i < WEIGHTS; i++) {
        float uniform = (float) (mix((uint64_t) i) >> 40) / (float) (1 << 24) - 0.5f;
        w[i] = uniform * 0.4f;
    }
    memset(net->b1, 0, sizeof(net->b1));
    memset(net->b2, 0, sizeof(net->b2));
}

/* ---- the network: 64 -> 48 (ReLU) -> 10 (softmax) ---- */

static void forward(const struct network *net, const struct image *im, float hidden[HIDDEN],
                    float probability[DIGITS]) {
    for (int h = 0; h < HIDDEN; h++) {
        float sum = net->b1[h];
        for (int p = 0; p < PIXELS; p++) sum += net->w1[h][p] * im->pixels[p];
        hidden[h] = sum > 0 ? sum : 0;
    }
    float top = -INFINITY, total = 0;
    for (int d = 0; d < DIGITS; d++) {
        float sum = net->b2[d];
        for (int h = 0; h < HIDDEN; h++) sum += net->w2[d][h] * hidden[h];
        probability[d] = sum;
        if (sum > top) top = sum;
    }
    for (int d = 0; d < DIGITS; d++) total += probability[d] = expf(probability[d] - top);
    for (int d = 0; d < DIGITS; d++) probability[d] /= total;
}

/* Adds the gradient of one image's cross-entropy loss to `grad`. Returns the loss. */
static float backward(const struct network *net, const struct image *im, struct network *grad) {
    float hidden[HIDDEN], error[DIGITS], back[HIDDEN] = {0};
    forward(net, im, hidden, error);
    float loss = -logf(error[im->digit] + 1e-12f);
    error[im->digit] -= 1;
    for (int d = 0; d < DIGITS; d++) {
        grad->b2[d] += error[d];
        for (int h = 0; h < HIDDEN; h++) {
            grad->w2[d][h] += error[d] * hidden[h];
            back[h] += error[d] * net->w2[d][h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        if (hidden[h] <= 0) continue;
        grad->b1[h] += back[h];
        for (int p = 0; p < PIXELS; p++) grad->w1[h][p] += back[h] * im->pixels[p];
    }
    return loss;
}

static int count_correct(const struct network *net) {
    int correct = 0;
    for (int i = 0; i < HELD_OUT_COUNT; i++) {
        float hidden[HIDDEN], probability[DIGITS];
        forward(net, &held_out[i], hidden, probability);
        int best = 0;
        for (int d = 1; d < DIGITS; d++) {
            if (probability[d] > probability[best]) best = d;
        }
        correct += best == held_out[i].digit;
    }
    return correct;
}

static uint64_t hash_weights(const struct network *net) { /* FNV-1a */
    const unsigned char *p = (const unsigned char *) net;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof(*net); i++) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- checkpoints ---- */

struct checkpoint {
    char magic[8]; /* "digits-1" */
    uint32_t world_size, weights;
    uint64_t step; /* number of steps made so far */
    uint64_t hash; /* hash_weights() of `net`, to detect a damaged file */
    struct network net;
};

/* Writes the checkpoint to a temporary file, flushes this file to disk and renames it to `path`. So
 * a crash at any moment leaves either the old or the new checkpoint, complete. */
static void save_checkpoint(const char *path, const struct checkpoint *c) {
    char temp[PATH_MAX];
    (void) snprintf(temp, sizeof(temp), "%s.new", path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, c, sizeof(*c)) != (ssize_t) sizeof(*c) || fsync(fd) < 0 ||
        close(fd) < 0 || rename(temp, path) < 0) {
        fail_at("write the checkpoint", path, strerror(errno));
    }
}

/* Reads the checkpoint into *c. Returns 1, or 0 if there is no file at `path`. If the checkpoint is
 * damaged, ends the program. */
static int load_checkpoint(const char *path, struct checkpoint *c, int world_size) {
    int fd = open(path, O_RDONLY);
    if (fd < 0 && errno == ENOENT) return 0;
    if (fd < 0) fail_at("open the checkpoint", path, strerror(errno));
    ssize_t n = read(fd, c, sizeof(*c));
    (void) close(fd);
    if (n != (ssize_t) sizeof(*c) || memcmp(c->magic, "digits-1", 8) != 0 ||
        c->weights != WEIGHTS || c->hash != hash_weights(&c->net)) {
        fail_at("read the checkpoint", path,
                "it is damaged or of another program; remove it to start from step 0");
    }
    if (c->world_size != (uint32_t) world_size) {
        printf("the checkpoint was written by %u ranks, now there are %d: the result will differ "
               "in its last bits\n",
               c->world_size, world_size);
    }
    return 1;
}

/* ---- training ---- */

struct training {
    struct options opt;
    crunrt *rt;
    crunrt_group *world;
    int rank, size;
    struct checkpoint state;
};

static void must(int rc, const char *what) {
    if (rc < 0) fail(what, crunrt_last_error());
}

/* Sets the weights with which the training begins or goes on: rank 0 reads them from the
 * checkpoint or, if there is none, makes initial weights, and broadcasts them. */
static void start_or_resume(struct training *t) {
    int resumed = 0;
    if (t->rank == 0) {
        resumed =
            t->opt.checkpoint != NULL && load_checkpoint(t->opt.checkpoint, &t->state, t->size);
        if (!resumed) {
            t->state = (struct checkpoint){.magic = "digits-1", .weights = WEIGHTS};
            init_network(&t->state.net);
        }
        t->state.world_size = (uint32_t) t->size;
        if (resumed) printf("resumed at step %llu\n", (unsigned long long) t->state.step);
    }
    must(crunrt_group_broadcast(t->world, &t->state, sizeof(t->state), CRUNRT_UINT8, 0),
         "share the initial weights");
}

static void crash_if_asked(const struct training *t, long step) {
    if (step != t->opt.crash_at || t->rank != t->opt.crash_rank || crunrt_restart_count(t->rt) > 0)
        return;
    fprintf(stderr, "rank %d: crashing on purpose at step %ld\n", t->rank, step);
    (void) raise(SIGKILL);
}

/* Makes one step of mini-batch gradient descent: computes the gradient of this rank's share of the
 * batch, sums it over all ranks, and updates the weights. Returns the batch's mean loss. */
static float train_step(struct training *t, uint64_t step, const uint16_t order[TRAIN_COUNT]) {
    static struct {
        struct network grad;
        float loss;
    } sum;
    memset(&sum, 0, sizeof(sum));
    long batch = t->opt.batch, steps_per_epoch = TRAIN_COUNT / batch;
    long first = (long) (step % (uint64_t) steps_per_epoch) * batch;
    for (long i = t->rank; i < batch; i += t->size) {
        sum.loss += backward(&t->state.net, &train[order[first + i]], &sum.grad);
    }
    must(crunrt_group_all_reduce(t->world, &sum, &sum, WEIGHTS + 1, CRUNRT_FLOAT32, CRUNRT_SUM),
         "sum the gradients");
    float *w = (float *) &t->state.net;
    const float *g = (const float *) &sum.grad;
    for (int i = 0; i < WEIGHTS; i++) w[i] -= t->opt.learning_rate / (float) batch * g[i];
    return sum.loss / (float) batch;
}

static void run(struct training *t) {
    static uint16_t order[TRAIN_COUNT];
    uint64_t shuffled = UINT64_MAX;
    while (t->state.step < (uint64_t) t->opt.steps) {
        uint64_t step = t->state.step, epoch = step / (uint64_t) (TRAIN_COUNT / t->opt.batch);
        if (epoch != shuffled) shuffle(shuffled = epoch, order);
        crash_if_asked(t, (long) step);
        float loss = train_step(t, step, order);
        t->state.step++;
        int last = t->state.step == (uint64_t) t->opt.steps;
        if (t->rank != 0) continue;
        if (t->state.step % 100 == 0 || last) {
            printf("step %llu  loss %.4f\n", (unsigned long long) t->state.step, (double) loss);
            (void) fflush(stdout);
        }
        if (t->opt.checkpoint != NULL &&
            (t->state.step % (uint64_t) t->opt.checkpoint_every == 0 || last)) {
            t->state.hash = hash_weights(&t->state.net);
            save_checkpoint(t->opt.checkpoint, &t->state);
        }
    }
}

static void report(const struct training *t) {
    if (t->rank != 0) return;
    int correct = count_correct(&t->state.net);
    printf("held-out accuracy %.2f %% (%d of %d)\n", 100.0 * correct / HELD_OUT_COUNT, correct,
           HELD_OUT_COUNT);
    printf("final weights %016llx\n", (unsigned long long) hash_weights(&t->state.net));
    (void) fflush(stdout);
}

/* ---- command line ---- */

static void usage(FILE *to) {
    fprintf(to, "usage: train_digits [options], started by crun\n"
                "  --steps N             steps of training (600)\n"
                "  --batch N             images per step, over all ranks (64)\n"
                "  --learning-rate X     (0.3)\n"
                "  --data FILE           the images (examples/data/digits.csv)\n"
                "  --checkpoint FILE     resume from it, and write it (none)\n"
                "  --checkpoint-every N  steps between checkpoints (50)\n"
                "  --crash-at STEP       in the first attempt, kill one rank at this step\n"
                "  --crash-rank RANK     the rank that --crash-at kills (1)\n");
}

static long number(const char *text, long min, long max) {
    char *end = NULL;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || n < min || n > max) {
        fprintf(stderr, "train_digits: '%s' is not a number from %ld to %ld\n", text, min, max);
        exit(2);
    }
    return n;
}

static struct options parse(int argc, char **argv) {
    static const struct option known[] = {
        {"steps", 1, NULL, 's'},         {"batch", 1, NULL, 'b'},
        {"learning-rate", 1, NULL, 'l'}, {"data", 1, NULL, 'd'},
        {"checkpoint", 1, NULL, 'c'},    {"checkpoint-every", 1, NULL, 'e'},
        {"crash-at", 1, NULL, 'a'},      {"crash-rank", 1, NULL, 'r'},
        {"help", 0, NULL, 'h'},          {0},
    };
    struct options o = {.steps = 600,
                        .batch = 64,
                        .learning_rate = 0.3f,
                        .checkpoint_every = 50,
                        .crash_at = -1,
                        .crash_rank = 1};
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 's': o.steps = number(optarg, 1, 1000000); break;
        case 'b': o.batch = number(optarg, 1, TRAIN_COUNT); break;
        case 'l': o.learning_rate = strtof(optarg, NULL); break;
        case 'd': o.data = optarg; break;
        case 'c': o.checkpoint = optarg; break;
        case 'e': o.checkpoint_every = number(optarg, 1, 1000000); break;
        case 'a': o.crash_at = number(optarg, 0, 1000000); break;
        case 'r': o.crash_rank = number(optarg, 0, INT_MAX); break;
        case 'h': usage(stdout); exit(0);
        default: usage(stderr); exit(2);
        }
    }
    if (optind < argc || !(o.learning_rate > 0)) {
        usage(stderr);
        exit(2);
    }
    return o;
}

int main(int argc, char **argv) {
    struct training t = {.opt = parse(argc, argv)};
    load_data(t.opt.data);
    must(crunrt_init(NULL, &t.rt), "start");
    must(crunrt_group_new(t.rt, NULL, &t.world), "meet the other ranks");
    t.rank = crunrt_rank(t.rt);
    t.size = crunrt_world_size(t.rt);
    if (t.rank == 0) {
        printf("%d ranks, %d weights, %d images to learn from\n", t.size, WEIGHTS, TRAIN_COUNT);
        (void) fflush(stdout);
    }
    start_or_resume(&t);
    run(&t);
    report(&t);
    must(crunrt_group_barrier(t.world), "end together");
    crunrt_group_destroy(t.world);
    crunrt_destroy(t.rt);
    return 0;
}
