/* A model of the succession: which coordinator may decide when the coordinator of a round with heirs
 * is lost. Spin checks that no two coordinators may decide when a round forms. README.md has the
 * assumptions and the results.
 *
 * Each node has a coordinator in its process. That of node 0 has formed round 1; another one serves
 * nodes once its own node has lost its coordinator. Two coordinators may form rounds of the same
 * number, so a round is an index here, and num[] has its number. Time is not modelled: a coordinator
 * holds the ballot of a node until some time after the connection is gone, and a node joins another
 * coordinator only when no coordinator holds its ballot. The lease and the 5/4 of a lease before a
 * vote are there for that.
 *
 *     -DNO_FENCE   a node votes while its last coordinator may still hold its ballot; this must
 *                  violate the assertion in form() */

#ifndef NODES
#define NODES 3
#endif
#ifndef LAST
#define LAST 3                 /* how many rounds may form */
#endif
#ifndef FAULTS
#define FAULTS 4
#endif
#define NOBODY 15
#define ALL ((1 << NODES) - 1)
#define HAS(set, n) (((set) >> (n)) & 1)
#define COUNT(set) (HAS(set, 0) + HAS(set, 1) + HAS(set, 2) + HAS(set, 3))
#define QUORUM(r) (COUNT(members[r]) / 2 + 1)

/* ---- rounds, from 1; all sets of nodes are bit masks ---- */
byte rounds = 1;
byte num[LAST + 1], by[LAST + 1], members[LAST + 1], before[LAST + 1];
bool done[LAST + 1];           /* its coordinator has found it settled */

/* ---- nodes ---- */
byte last[NODES];              /* the last round that the node has received */
bool settled[NODES];           /* it knows that this round is settled */
byte link[NODES];              /* the coordinator to which it is connected */
byte coming[NODES];            /* a ROUND under way to it; 0 = none */

/* ---- coordinators ---- */
bool serves[NODES], formed[NODES], won[NODES], won_prior[NODES];
byte now[NODES], prior[NODES]; /* rounds of the two electorates; 0 = none */
byte held[NODES];              /* nodes that join no other coordinator */
byte ballots[NODES];           /* nodes that have a ballot in `now` */
byte ballots_prior[NODES];     /* nodes that have a ballot in `prior` */
byte for_ever[NODES];          /* of these, the nodes that have received a later round */

byte faults;
byte i;

#define SAME(a, b) ((a) != 0 && (a) == (b))

#define OURS(c)        COUNT(ballots[c] & held[c])
#define OURS_PRIOR(c)  COUNT(ballots_prior[c] & held[c] | for_ever[c])
#define FREE(c)        (COUNT(members[now[c]]) - OURS(c))
#define FREE_PRIOR(c)  (COUNT(members[prior[c]]) - OURS_PRIOR(c))

inline weigh(c) {
    if
    :: OURS(c) >= QUORUM(now[c]) -> won[c] = true
    :: OURS(c) < QUORUM(now[c]) && FREE(c) >= QUORUM(now[c]) -> won[c] = false
    :: else
    fi;
    if
    :: prior[c] != 0 && OURS_PRIOR(c) >= QUORUM(prior[c]) -> won_prior[c] = true
    :: prior[c] != 0 && OURS_PRIOR(c) < QUORUM(prior[c]) && FREE_PRIOR(c) >= QUORUM(prior[c]) ->
        won_prior[c] = false
    :: else
    fi;
    /* so many nodes have received the round that no other coordinator wins the one before */
    if
    :: prior[c] != 0 && formed[c] &&
       COUNT(members[prior[c]]) - COUNT(for_ever[c]) < QUORUM(prior[c]) ->
        done[now[c]] = true; end_prior(c)
    :: else
    fi
}

inline end_prior(c) { prior[c] = 0; ballots_prior[c] = 0; for_ever[c] = 0; won_prior[c] = false }

#define MAY_PRIOR(c) (prior[c] == 0 || won_prior[c] && FREE_PRIOR(c) < QUORUM(prior[c]))
#define MAY_DECIDE(c) (serves[c] && now[c] != 0 && won[c] && FREE(c) < QUORUM(now[c]) && MAY_PRIOR(c))
#define OTHER_DECIDES(c, d) ((d) != (c) && MAY_DECIDE(d))

#define MAY_FORM(c, nodes) (MAY_DECIDE(c) && prior[c] == 0 && rounds < LAST && COUNT(nodes) >= 3)

/* A round of these nodes forms. */
inline form(c, nodes) {
    assert(!OTHER_DECIDES(c, 0) && !OTHER_DECIDES(c, 1) && !OTHER_DECIDES(c, 2)
#if NODES > 3
           && !OTHER_DECIDES(c, 3)
#endif
    );
    rounds++;
    num[rounds] = num[now[c]] + 1;
    by[rounds] = c;
    members[rounds] = nodes;
    before[rounds] = now[c];
    prior[c] = now[c]; ballots_prior[c] = ballots[c]; won_prior[c] = true; for_ever[c] = 0;
    done[rounds] = prior[c] == 0;
    now[c] = rounds; ballots[c] = held[c] & (nodes); won[c] = true; formed[c] = true;
    for (i : 0 .. NODES - 1) {
        if :: HAS(nodes, i) && link[i] == c -> coming[i] = rounds :: else fi
    }
    i = 0;
    weigh(c)
}

/* The node names its last round to the coordinator, by JOIN or a beat. */
inline name(c, n) {
    if
    :: !formed[c] && (now[c] == 0 || num[last[n]] > num[now[c]]) -> /* it begins to count this round */
        now[c] = last[n]; ballots[c] = 0; won[c] = false;
        end_prior(c);
        if :: !settled[n] -> prior[c] = before[last[n]] :: else fi
    :: else
    fi;
    if :: SAME(last[n], now[c]) && HAS(members[now[c]], n) -> ballots[c] = ballots[c] | 1 << n
       :: else
    fi;
    if
    :: prior[c] != 0 && SAME(last[n], prior[c]) && HAS(members[prior[c]], n) ->
        ballots_prior[c] = ballots_prior[c] | 1 << n
    :: prior[c] != 0 && SAME(last[n], now[c]) && HAS(ballots[c], n) && HAS(members[prior[c]], n) ->
        for_ever[c] = for_ever[c] | 1 << n
    :: else
    fi;
    if :: !formed[c] && SAME(last[n], now[c]) && settled[n] -> end_prior(c) :: else fi
}

inline release(by_whom, node) {
    held[by_whom] = held[by_whom] & ~(1 << node);
    ballots[by_whom] = ballots[by_whom] & ~(1 << node);
    ballots_prior[by_whom] = ballots_prior[by_whom] & ~(1 << node);
    weigh(by_whom)
}

#define HELD_BY(c, d, n) ((d) != (c) && HAS(held[d], n))
#if NODES > 3
#define HELD_ELSEWHERE(c, n) (HELD_BY(c, 0, n) || HELD_BY(c, 1, n) || HELD_BY(c, 2, n) || HELD_BY(c, 3, n))
#else
#define HELD_ELSEWHERE(c, n) (HELD_BY(c, 0, n) || HELD_BY(c, 1, n) || HELD_BY(c, 2, n))
#endif
#ifdef NO_FENCE
#define MAY_JOIN(c, n) true
#else
#define MAY_JOIN(c, n) (!HELD_ELSEWHERE(c, n))
#endif
/* the heirs of a round are its nodes; the coordinator that has formed it is tried, too */
#define IS_CANDIDATE(c, n) (COUNT(members[last[n]]) >= 3 && HAS(members[last[n]], c) || by[last[n]] == c)

inline join(c, n) {
    link[n] = c;
    held[c] = held[c] | 1 << n;
    name(c, n);
    weigh(c)
}

/* The connection of the node breaks; what is under way is lost. */
inline lose(n) { link[n] = NOBODY; coming[n] = 0 }

/* A coordinator closes the connections of its nodes and frees their ballots. */
inline drop(c) {
    for (i : 0 .. NODES - 1) {
        if :: HAS(held[c], i) -> release(c, i) :: else fi;
        if :: link[i] == c -> lose(i) :: else fi
    }
    i = 0
}

inline forget(c) { drop(c); formed[c] = false; now[c] = 0; won[c] = false; end_prior(c) }

/* The node of this coordinator has lost the one that it was connected to, so this coordinator
 * serves the others; it may do so again and again. */
#define MAY_SERVE(c) (link[c] == NOBODY && MAY_JOIN(c, c) && HAS(members[last[c]], c))
inline serve(c) { forget(c); serves[c] = true }

/* ROUND comes to a node. A coordinator sends it again to a node that had lost its connection before
 * ROUND came. */
#define MAY_SEND_AGAIN(n) (link[n] != NOBODY && coming[n] == 0 && formed[link[n]] && \
                           last[n] != now[link[n]] && HAS(members[now[link[n]]], n))
inline hear(n) {
    last[n] = coming[n]; coming[n] = 0; settled[n] = false;
    /* another coordinator leads, so the one in the process of this node serves nobody */
    if :: serves[n] && by[last[n]] != n -> forget(n); serves[n] = false :: else fi
}

/* A beat of the node names its last round. */
#define MAY_BEAT(n) (link[n] != NOBODY && coming[n] == 0 && SAME(last[n], now[link[n]]) && \
                     prior[link[n]] != 0 && !HAS(for_ever[link[n]], n) && HAS(ballots[link[n]], n))

/* The answer to a beat says that the node's round is settled. */
#define MAY_SETTLE(n) (link[n] != NOBODY && by[last[n]] == link[n] && done[last[n]] && !settled[n])

/* A coordinator no longer holds the ballot of a node that it does not hear. The node may still be
 * connected: then its beats are late, and a later one makes the ballot held again, as JOIN does. */
#define MAY_RELEASE(c, n) (HAS(held[c], n) && (link[n] != c || faults < FAULTS))
#define MAY_HOLD_AGAIN(n) (link[n] != NOBODY && !HAS(held[link[n]], n) && MAY_JOIN(link[n], n))

#ifndef TRACE
proctype Coordinator(byte c) {
end:
    do
    :: atomic { MAY_FORM(c, held[c]) -> form(c, held[c]) }
    /* a node that is not heard may get a place, too: it is not lost yet */
    :: atomic { MAY_FORM(c, ALL) && held[c] != ALL -> form(c, ALL) }
    :: atomic { MAY_SERVE(c) -> serve(c) }
    /* it lacks the majority and sends its nodes away */
    :: atomic { serves[c] && held[c] != 0 && !MAY_DECIDE(c) && faults < FAULTS -> faults++;
        drop(c) }
    od
}

proctype Node(byte n) {
end:
    do
    :: atomic { link[n] == NOBODY && serves[0] && IS_CANDIDATE(0, n) && MAY_JOIN(0, n) -> join(0, n) }
    :: atomic { link[n] == NOBODY && serves[1] && IS_CANDIDATE(1, n) && MAY_JOIN(1, n) -> join(1, n) }
    :: atomic { link[n] == NOBODY && serves[2] && IS_CANDIDATE(2, n) && MAY_JOIN(2, n) -> join(2, n) }
#if NODES > 3
    :: atomic { link[n] == NOBODY && serves[3] && IS_CANDIDATE(3, n) && MAY_JOIN(3, n) -> join(3, n) }
#endif
    :: atomic { link[n] != NOBODY && faults < FAULTS -> faults++; lose(n) }
    :: atomic { coming[n] != 0 -> hear(n) }
    :: atomic { MAY_SEND_AGAIN(n) -> coming[n] = now[link[n]] }
    :: atomic { MAY_HOLD_AGAIN(n) -> join(link[n], n) }
    :: atomic { MAY_BEAT(n) -> name(link[n], n); weigh(link[n]) }
    :: atomic { MAY_SETTLE(n) -> settled[n] = true }
    :: atomic { MAY_RELEASE(0, n) -> faults = faults + (link[n] == 0); release(0, n) }
    :: atomic { MAY_RELEASE(1, n) -> faults = faults + (link[n] == 1); release(1, n) }
    :: atomic { MAY_RELEASE(2, n) -> faults = faults + (link[n] == 2); release(2, n) }
#if NODES > 3
    :: atomic { MAY_RELEASE(3, n) -> faults = faults + (link[n] == 3); release(3, n) }
#endif
    od
}
#endif

init {
    atomic {
        num[1] = 1; by[1] = 0; members[1] = ALL; done[1] = true;
        for (i : 0 .. NODES - 1) { last[i] = 1; settled[i] = true; link[i] = 0 }
        i = 0;
        serves[0] = true; formed[0] = true; now[0] = 1; won[0] = true;
        held[0] = ALL; ballots[0] = ALL;
#ifdef TRACE
        run Trace(); run Follower()
#else
        run Coordinator(0); run Coordinator(1); run Coordinator(2);
        run Node(0); run Node(1); run Node(2);
#if NODES > 3
        run Coordinator(3); run Node(3);
#endif
#endif
    }
}
