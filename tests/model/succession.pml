/* A model of the succession: which coordinator may decide when the coordinator of a round with heirs
 * is lost. Spin checks that no two coordinators ever may decide when a round forms. README.md has
 * the assumptions and the results.
 *
 * Each node has a coordinator in its process. Node 0 hosts the first one; the others lead only after
 * they have taken over. A round is a number in 1 .. LAST_ROUND; its fields are in num, by, members
 * and before. Time is not modelled: a coordinator holds the ballot of a node until its hold ends at
 * some time after the connection is gone, and a node votes only when no other coordinator holds its
 * ballot. That is what the lease and the 5/4 of a lease before a vote are for.
 *
 *     -DNO_FORMED_BY   rounds are told apart by their numbers only
 *     -DNO_RESET       a coordinator that has lost the majority need not win again
 *     -DNO_BEFORE      the electorate of the round before does not count
 *     -DNO_FENCE       a node votes while its old coordinator may still hold its ballot
 *
 * Each of these four must violate the assertion. */

#ifndef NODES
#define NODES 3
#endif
#ifndef LAST_ROUND
#define LAST_ROUND 3
#endif
#ifndef FAULTS
#define FAULTS 3
#endif
#define NOBODY 15
#define NONE   0                   /* no round */
#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) >> (n)) & 1)

/* ---- rounds ---- */
byte rounds = 1;                   /* how many have formed; the first one is there at the start */
byte num[LAST_ROUND + 1];          /* its number; two coordinators may form rounds of one number */
byte by[LAST_ROUND + 1];           /* the coordinator that has formed it */
byte members[LAST_ROUND + 1];      /* a bit for each of its nodes */
byte before[LAST_ROUND + 1];       /* the round whose electorate counts until it is settled */

/* ---- nodes ---- */
byte last[NODES];                  /* the last round that the node has received */
byte link[NODES];                  /* the coordinator to which it is connected */
byte coming[NODES];                /* a ROUND that is on its way to the node */
bool is_up[NODES], knows_settled[NODES];

/* ---- coordinators; index = node in whose process it runs ---- */
bool leads[NODES], has_formed[NODES];
byte now[NODES], prior[NODES];     /* rounds of its electorates, `now` and `before` in the program */
bool won[NODES], won_prior[NODES];
byte held[NODES];                  /* a bit for each node whose ballot it holds */
byte void[NODES];                  /* a bit for each node whose process it has seen to end */
byte heard[NODES];                 /* a bit for each node that has named the round `now` */
byte heard_prior[NODES];           /* a bit for each node that has named the round `prior` */

byte faults;
byte i, k, free_now, held_now, free_prior, held_prior, size;

inline count(set, out) {
    out = 0;
    for (k : 0 .. NODES - 1) { out = out + HAS(set, k) }
    k = 0
}

/* Sets won and won_prior from the ballots, as electorate_may_decide() does. */
inline weigh(c) {
    d_step {
        count(members[now[c]], size);
        count(members[now[c]] & held[c] & heard[c] & ~void[c], held_now);
        count(members[now[c]] & ~(held[c] & heard[c]) & ~void[c], free_now);
        if :: held_now * 2 > size -> won[c] = true
#ifndef NO_RESET
           :: held_now * 2 <= size && free_now * 2 > size -> won[c] = false
#endif
           :: else
        fi;
        /* a node that has named the round `now` can elect nobody as a node of the round before */
        count(members[prior[c]], size);
        count(members[prior[c]] & (heard[c] & named[c] | held[c] & heard_prior[c] & ~void[c]), held_prior);
        count(members[prior[c]] & ~(heard[c] & named[c]) & ~(held[c] & heard_prior[c]) & ~void[c], free_prior);
        if :: held_prior * 2 > size -> won_prior[c] = true
#ifndef NO_RESET
           :: held_prior * 2 <= size && free_prior * 2 > size -> won_prior[c] = false
#endif
           :: else
        fi
    }
}
