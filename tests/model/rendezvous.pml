/* A model of rounds, election and resumption: members, coordinators (hosts), and etcd. Spin checks
 * it: tests/model/README.md has the assumptions, the invariants and the results.
 *
 * Every change of a member's state is a MEMBER(n, FROM, TO), every change of a coordinator's phase a
 * PHASE(h, FROM, TO), and every change of a seat's state a SEAT(h, n, FROM, TO). check_trace.py reads
 * these lists from this file and compares them with the logs of the program. */

#ifndef NODES
#define NODES 2
#endif
#define HOSTS 2
#ifndef MIN
#define MIN 1
#endif
#ifndef LAST_ROUND
#define LAST_ROUND 3   /* number of the last round that is explored */
#endif
#ifndef LAST_EPOCH
#define LAST_EPOCH 2
#endif
#ifndef FAULTS
#define FAULTS 2       /* crashes, breaks of connections, and failed workers, together */
#endif

mtype = { IDLE, CONNECTING, JOINING, RUNNING, SUCCEEDED, FAILED, STOPPING, LEAVING, ENDED,
          NONE, JOINED, EMPTY, FORMING, REBUILDING, DOWN,
          M_JOIN, M_RESUME, M_FAILED, M_ROUND, M_STOP };

#define NOBODY 9

/* ---- members; round numbers begin at 1, 0 = none ---- */
mtype member[NODES] = IDLE;
byte workers[NODES];          /* round of the living workers; 0 = no worker lives */
byte remembers[NODES];        /* the last round that the member was in */
byte obeyed[NODES];           /* the largest epoch that it has obeyed */
byte link[NODES] = NOBODY;    /* the host to which it is connected */
bool limited[NODES];          /* its workers must be gone within a lease */
chan to_host[NODES] = [3] of { mtype, byte };
chan to_member[NODES] = [3] of { mtype, byte };

/* ---- hosts ---- */
mtype phase[HOSTS] = DOWN;
byte epoch[HOSTS], round[HOSTS], next_round[HOSTS];
bool leads[HOSTS];            /* it serves members */
bool right[HOSTS];            /* it may form rounds */
bool has_formed[HOSTS];
bool is_quiet[HOSTS];         /* it waits until no worker of an earlier leader's round lives */
mtype seat[HOSTS * NODES] = NONE;
bool has_link[HOSTS * NODES]; /* the seat belongs to the node's current connection */
#define AT(h, n) ((h) * NODES + (n))

/* ---- etcd, and what the checks need ---- */
byte key = NOBODY, last_epoch, last_leader = NOBODY;
byte formed_epoch;            /* the largest epoch under which a round was formed */
byte size_of[LAST_ROUND + 1]; /* how many nodes the round has */
byte faults;
byte i;                       /* for loops, which are all inside of atomic steps */

#define MEMBER(n, from, to)   assert(member[n] == from); member[n] = to
#define PHASE(h, from, to)    assert(phase[h] == from); phase[h] = to
#define SEAT(h, n, from, to)  assert(seat[AT(h, n)] == from); seat[AT(h, n)] = to

inline drain(n) {
    do :: nempty(to_host[n]) -> to_host[n]?_,_ :: empty(to_host[n]) -> break od;
    do :: nempty(to_member[n]) -> to_member[n]?_,_ :: empty(to_member[n]) -> break od;
    has_link[AT(0, n)] = false;
    has_link[AT(1, n)] = false
}

/* ---- coordinator ---- */

inline send(h, n, what, number) {
    if :: has_link[AT(h, n)] -> to_member[n]!what,number
       :: else -> skip   /* the seat is suspended; RESUME repeats what is lost */
    fi
}

/* Ends the running round. */
inline stop_round(h) {
    for (i : 0 .. NODES - 1) {
        if
        :: seat[AT(h, i)] == RUNNING -> SEAT(h, i, RUNNING, STOPPING); limited[i] = limited[i] || !right[h]; send(h, i, M_STOP, round[h])
        :: seat[AT(h, i)] == SUCCEEDED -> SEAT(h, i, SUCCEEDED, STOPPING); limited[i] = limited[i] || !right[h]; send(h, i, M_STOP, round[h])
        :: else
        fi
    }
    i = 0;
    if
    :: phase[h] == RUNNING -> PHASE(h, RUNNING, FORMING)
    :: phase[h] == REBUILDING -> PHASE(h, REBUILDING, FORMING)
    :: else
    fi
}

inline clear_host(h) {
    for (i : 0 .. NODES - 1) {
        seat[AT(h, i)] = NONE;
        if :: link[i] == h -> link[i] = NOBODY; drain(i) :: else fi
    }
    i = 0; round[h] = 0; next_round[h] = 1; has_formed[h] = false; is_quiet[h] = false
}

inline remember(h, r) {
    if :: r >= next_round[h] -> next_round[h] = r + 1 :: else fi
}

inline got_join(h, n, r) {
    has_link[AT(h, n)] = true;
    if
    :: seat[AT(h, n)] == STOPPING -> SEAT(h, n, STOPPING, JOINED)
    :: seat[AT(h, n)] == NONE -> SEAT(h, n, NONE, JOINED)
    :: seat[AT(h, n)] == RUNNING || seat[AT(h, n)] == SUCCEEDED -> /* an old connection's seat */
        stop_round(h); SEAT(h, n, STOPPING, JOINED)
    :: else
    fi;
    remember(h, r);
    if :: phase[h] == EMPTY -> PHASE(h, EMPTY, FORMING) :: else fi
}

inline got_resume(h, n, r) {
    has_link[AT(h, n)] = true;
    if
    :: seat[AT(h, n)] == NONE && !has_formed[h] && phase[h] != RUNNING && (round[h] == 0 || round[h] == r) ->
        remember(h, r);
        round[h] = r;
        SEAT(h, n, NONE, JOINED); /* a new seat begins as JOINED, within the same step */
        SEAT(h, n, JOINED, RUNNING);
        if
        :: phase[h] == EMPTY -> PHASE(h, EMPTY, REBUILDING)
        :: phase[h] == FORMING -> PHASE(h, FORMING, REBUILDING)
        :: else
        fi
    :: seat[AT(h, n)] == RUNNING && round[h] == r -> skip /* it has its seat back */
    :: else -> send(h, n, M_STOP, r);
        if :: seat[AT(h, n)] == NONE -> SEAT(h, n, NONE, JOINED); SEAT(h, n, JOINED, STOPPING)
           :: else
        fi;
        if :: phase[h] == EMPTY -> PHASE(h, EMPTY, FORMING) :: else fi
    fi
}

#if NODES > 2
#define THIRD(what, h) && seat[AT(h, 2)] what
#define PLUS_THIRD(what, h) + (seat[AT(h, 2)] what)
#else
#define THIRD(what, h)
#define PLUS_THIRD(what, h)
#endif
#define NO_STOPPING(h) (seat[AT(h, 0)] != STOPPING && seat[AT(h, 1)] != STOPPING THIRD(!= STOPPING, h))
#define WAITING(h) ((seat[AT(h, 0)] == JOINED) + (seat[AT(h, 1)] == JOINED) PLUS_THIRD(== JOINED, h))

inline form(h) {
    /* Two coordinators never both form rounds: a newer one has formed none yet. */
    assert(epoch[h] >= formed_epoch);
    formed_epoch = epoch[h];
    round[h] = next_round[h];
    next_round[h]++;
    size_of[round[h]] = WAITING(h);
    has_formed[h] = true;
    is_quiet[h] = false;
    PHASE(h, FORMING, RUNNING);
    for (i : 0 .. NODES - 1) {
        /* No worker of an older round lives anywhere when a round begins. */
        assert(workers[i] == 0);
        if :: seat[AT(h, i)] == JOINED -> SEAT(h, i, JOINED, RUNNING); send(h, i, M_ROUND, round[h])
           :: else
        fi
    }
    i = 0
}

/* The lease of a node at a host ends only after the node has fenced itself, or when the node has
 * gone over to another host. */
#define LEASE_OVER(h, n) (link[n] != h && (workers[n] == 0 || link[n] != NOBODY))

/* When a leader has been quiet for its time, the workers of nodes without a connection are gone
 * (fence), and so are those that an older leader has stopped. No ROUND of an older leader is under
 * way any more either, because a message takes less than a lease. -DLIMIT drops the assumption that one
 * node of the older leader's round has gone over to this leader, -DNO_QUIET the waiting itself. */
#ifdef LIMIT
#define IS_OVER(h, n) (workers[n] == 0 || link[n] != NOBODY)
#else
#define IS_OVER(h, n) (workers[n] == 0 && (link[n] == h || empty(to_member[n])))
#endif
#if NODES > 2
#define AND_THIRD(h) && IS_OVER(h, 2)
#else
#define AND_THIRD(h)
#endif
#define QUIET_IS_OVER(h) (IS_OVER(h, 0) && IS_OVER(h, 1) AND_THIRD(h))
#ifdef NO_QUIET
#define MAY_BE_QUIET(h) false
#else
#define MAY_BE_QUIET(h) is_quiet[h]
#endif

/* All nodes of the round have resumed. */
#define IN_ROUND(h, n) (seat[AT(h, n)] == RUNNING || seat[AT(h, n)] == SUCCEEDED)
#if NODES > 2
#define ALSO_IN_ROUND(h) + IN_ROUND(h, 2)
#define ALSO_NEED || (link[2] == NOBODY && member[2] != IDLE && member[2] != ENDED)
#else
#define ALSO_IN_ROUND(h)
#define ALSO_NEED
#endif
#define IS_WHOLE(h) (IN_ROUND(h, 0) + IN_ROUND(h, 1) ALSO_IN_ROUND(h) == size_of[round[h]])
/* Some node has no coordinator, so a candidate claims the key. */
#define NEED (link[0] == NOBODY && member[0] != IDLE && member[0] != ENDED || \
              link[1] == NOBODY && member[1] != IDLE && member[1] != ENDED ALSO_NEED)

inline take_message(h, n) {
    if
    :: to_host[n]?M_JOIN,r -> got_join(h, n, r)
    :: to_host[n]?M_RESUME,r -> got_resume(h, n, r)
    :: to_host[n]?M_FAILED,r ->
        if
        :: phase[h] == RUNNING && seat[AT(h, n)] == RUNNING && r == round[h] ->
            limited[n] = limited[n] || !right[h]; stop_round(h)
        :: else
        fi
    fi;
    r = 0
}

inline lose(h, n) {
    if
    :: (seat[AT(h, n)] == RUNNING || seat[AT(h, n)] == SUCCEEDED) &&
       (phase[h] == RUNNING || phase[h] == REBUILDING) -> stop_round(h)
    :: else
    fi;
    seat[AT(h, n)] = NONE
}

proctype Host(byte h) {
    byte r;
end:
    do
    /* messages */
    :: atomic { phase[h] != DOWN && link[0] == h && nempty(to_host[0]) -> take_message(h, 0) }
    :: atomic { phase[h] != DOWN && link[1] == h && nempty(to_host[1]) -> take_message(h, 1) }
#if NODES > 2
    :: atomic { phase[h] != DOWN && link[2] == h && nempty(to_host[2]) -> take_message(h, 2) }
#endif
    /* a node is lost: its lease is over */
    :: atomic { phase[h] != DOWN && seat[AT(h, 0)] != NONE && LEASE_OVER(h, 0) -> lose(h, 0) }
    :: atomic { phase[h] != DOWN && seat[AT(h, 1)] != NONE && LEASE_OVER(h, 1) -> lose(h, 1) }
#if NODES > 2
    :: atomic { phase[h] != DOWN && seat[AT(h, 2)] != NONE && LEASE_OVER(h, 2) -> lose(h, 2) }
#endif
    /* rounds */
    :: atomic { phase[h] == FORMING && right[h] && !MAY_BE_QUIET(h) && NO_STOPPING(h) &&
                WAITING(h) >= MIN && next_round[h] <= LAST_ROUND -> form(h) }
    :: atomic { phase[h] == REBUILDING && IS_WHOLE(h) -> has_formed[h] = true; is_quiet[h] = false;
                PHASE(h, REBUILDING, RUNNING) }
    :: atomic { phase[h] == REBUILDING && !IS_WHOLE(h) -> stop_round(h) }
    :: atomic { phase[h] == FORMING && is_quiet[h] && QUIET_IS_OVER(h) -> is_quiet[h] = false }
    /* the election: etcd confirms the leader or not, deletes the key, a host creates it */
    :: atomic { phase[h] != DOWN && right[h] && faults < FAULTS -> faults++; right[h] = false }
    :: atomic { phase[h] != DOWN && !right[h] && key == h && leads[h] -> right[h] = true }
    :: atomic { key == h && !right[h] -> key = NOBODY }
    :: atomic { key == NOBODY && last_epoch < LAST_EPOCH &&
                (last_leader == h && phase[h] != DOWN || NEED) ->
        last_epoch++;
        key = h;
        if
        :: last_leader == h && phase[h] != DOWN -> skip      /* it knows the job */
        :: else ->
            if :: phase[h] == DOWN -> phase[h] = EMPTY
               :: else -> clear_host(h); phase[h] = EMPTY
            fi;
            next_round[h] = 1;
            is_quiet[h] = last_epoch > 1    /* the mark: another has led before */
        fi;
        last_leader = h; epoch[h] = last_epoch; leads[h] = true; right[h] = true }
    :: atomic { phase[h] != DOWN && leads[h] && key != NOBODY && key != h -> /* another leads */
        clear_host(h); leads[h] = false; right[h] = false; phase[h] = DOWN }
    :: atomic { phase[h] == FORMING && !right[h] && leads[h] && NO_STOPPING(h) &&
                WAITING(h) >= MIN -> /* a round is held: it stands by */
        for (i : 0 .. NODES - 1) {
            seat[AT(h, i)] = NONE;
            if :: link[i] == h -> link[i] = NOBODY; drain(i) :: else fi
        }
        i = 0; leads[h] = false }
    :: atomic { phase[h] != DOWN && faults < FAULTS -> faults++;   /* its process dies */
        clear_host(h); leads[h] = false; right[h] = false; phase[h] = DOWN }
    od
}

/* ---- members ---- */

inline break_link(n) { link[n] = NOBODY; drain(n) }

inline workers_are_gone(n) { workers[n] = 0; limited[n] = false }

#define SERVES(h, n) (leads[h] && epoch[h] >= obeyed[n])

proctype Member(byte n) {
    byte r; byte h;
end:
    do
    :: atomic { member[n] == IDLE -> MEMBER(n, IDLE, CONNECTING) }
    /* connecting */
    :: atomic { (member[n] == CONNECTING || member[n] == RUNNING) && link[n] == NOBODY &&
                (SERVES(0, n) || SERVES(1, n)) ->
        if
        :: SERVES(0, n) -> h = 0
        :: SERVES(1, n) -> h = 1
        fi;
        link[n] = h; obeyed[n] = epoch[h]; h = 0;
        if
        :: member[n] == CONNECTING -> MEMBER(n, CONNECTING, JOINING); to_host[n]!M_JOIN,remembers[n]
        :: else -> to_host[n]!M_RESUME,remembers[n]
        fi }
    /* losing the connection: by the network, or because another node leads */
    :: atomic { link[n] != NOBODY && faults < FAULTS -> faults++; break_link(n) }
    :: atomic { link[n] != NOBODY && key != NOBODY && key != link[n] && epoch[key] > obeyed[n] ->
        break_link(n) }
    :: atomic { link[n] == NOBODY && member[n] == JOINING -> MEMBER(n, JOINING, CONNECTING) }
    /* the fence */
    :: atomic { link[n] == NOBODY && member[n] == RUNNING -> MEMBER(n, RUNNING, STOPPING) }
    :: atomic { link[n] == NOBODY && member[n] == SUCCEEDED -> MEMBER(n, SUCCEEDED, STOPPING) }
    :: atomic { link[n] == NOBODY && member[n] == FAILED -> MEMBER(n, FAILED, STOPPING) }
    /* messages */
    :: atomic { nempty(to_member[n]) ->
        if
        :: to_member[n]?M_ROUND,r ->
            if
            :: member[n] == JOINING -> MEMBER(n, JOINING, RUNNING);
                workers[n] = r; remembers[n] = r
            :: else
            fi
        :: to_member[n]?M_STOP,r ->
            if
            :: member[n] == RUNNING && r == remembers[n] -> MEMBER(n, RUNNING, STOPPING)
            :: member[n] == SUCCEEDED && r == remembers[n] -> MEMBER(n, SUCCEEDED, STOPPING)
            :: member[n] == FAILED && r == remembers[n] && limited[n] -> MEMBER(n, FAILED, STOPPING)
            :: else
            fi
        fi;
        r = 0 }
    /* workers */
    :: atomic { member[n] == RUNNING && link[n] != NOBODY && faults < FAULTS -> faults++;
        MEMBER(n, RUNNING, FAILED); to_host[n]!M_FAILED,remembers[n] }
    :: atomic { member[n] == RUNNING && faults < FAULTS -> faults++;
        MEMBER(n, RUNNING, SUCCEEDED); workers[n] = 0 }
    :: atomic { member[n] == FAILED && link[n] != NOBODY -> workers_are_gone(n);
        MEMBER(n, FAILED, JOINING); to_host[n]!M_JOIN,remembers[n] }
    :: atomic { member[n] == STOPPING && link[n] != NOBODY -> workers_are_gone(n);
        MEMBER(n, STOPPING, JOINING); to_host[n]!M_JOIN,remembers[n] }
    :: atomic { member[n] == STOPPING && link[n] == NOBODY -> workers_are_gone(n);
        MEMBER(n, STOPPING, CONNECTING) }
    /* the end: of the job, by a signal, or by a crash */
    :: atomic { faults < FAULTS && member[n] != IDLE && member[n] != LEAVING &&
                member[n] != ENDED -> faults++;
        if
        :: member[n] == CONNECTING -> MEMBER(n, CONNECTING, LEAVING)
        :: member[n] == JOINING -> MEMBER(n, JOINING, LEAVING)
        :: member[n] == RUNNING -> MEMBER(n, RUNNING, LEAVING)
        :: member[n] == SUCCEEDED -> MEMBER(n, SUCCEEDED, LEAVING)
        :: member[n] == FAILED -> MEMBER(n, FAILED, LEAVING)
        :: member[n] == STOPPING -> MEMBER(n, STOPPING, LEAVING)
        fi }
    :: atomic { member[n] == LEAVING -> workers[n] = 0; break_link(n); MEMBER(n, LEAVING, ENDED) }
    :: atomic { faults < FAULTS && member[n] != IDLE && member[n] != ENDED -> faults++;
        workers[n] = 0; break_link(n); remembers[n] = 0; obeyed[n] = 0; member[n] = IDLE }
    od
}

init {
    atomic {
        run Host(0); run Host(1);
        run Member(0); run Member(1);
#if NODES > 2
        run Member(2);
#endif
    }
}
