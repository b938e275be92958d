/* The commit protocol of one table: filing, deciding, publishing, answering, generations, leases, garbage.
 *
 * One step is one call of ZooKeeper or of the object store, never more; between two of them anybody else may run, and a
 * client may stop for ever. A read that can only say "begin again" is one step with the read before it (docs/model.md
 * says why that leaves nothing out). What a run has is told by -D; scripts/check-model has the runs. -DNO_... takes a check
 * out of the protocol, to see that the model notices.
 *
 * Client c owns transaction c: `byte`s that hold several of them have one bit for each.
 */
#include "common.pml"

#ifndef CLIENTS
#define CLIENTS 2 /* owners of a transaction */
#endif
#ifndef CHANGES
#define CHANGES 2 /* those of the transactions that change what others change; the rest are blind appends */
#endif
#ifndef ROOM
#define ROOM 2 /* versions that one multi may make */
#endif
#ifndef LOSSES
#define LOSSES 1 /* how often a request or its reply is lost where that makes a difference */
#endif
#ifndef EXPIRIES
#define EXPIRIES 0 /* sessions that end while their client goes on */
#endif
#ifndef CLOSE_AT
#define CLOSE_AT 0 /* slots after which the first generation is used up; 0: never */
#endif
#ifndef SLOTS
#define SLOTS (CLIENTS + LOSSES) /* slots of a generation */
#endif
#ifndef RECORDS
#define RECORDS (CLIENTS + LOSSES + 1)
#endif
#ifndef VERSIONS
#define VERSIONS CLIENTS
#endif
#if CLOSE_AT > 0
#define GENERATIONS 2
#else
#define GENERATIONS 1
#endif

#define AT(generation, slot) ((generation) * SLOTS + (slot))
#define IS_CHANGE(one) HAS(CHANGES, one)

/* -- ZooKeeper ---------------------------------------------------------------------------------------------------- */

byte hv, hg, hs;                 /* head: versions 0..hv-1 are ratified, slots 0..hs-1 of generation hg decided */
byte counter[GENERATIONS];       /* ZooKeeper's counters of sequential children */
byte there[GENERATIONS];         /* which slots stand */
byte marked[GENERATIONS];        /* which of the intents say "filed again" */
byte who[GENERATIONS * SLOTS];   /* whose intent: transaction + 1. It never changes, so it is kept when its node is gone */
byte since[GENERATIONS * SLOTS]; /* the first version that it has to be compared with: its validated_through + 1 */

/* The verdict records in the order in which they were made; a name is what was decided last (+ 1). */
byte records;
byte r_generation[RECORDS], r_slot[RECORDS], r_version[RECORDS];
byte r_batch[RECORDS];             /* the batch id: who made it, + 1 */
byte r_direct[RECORDS];            /* the transaction + 1 that had no slot */
byte verdict[GENERATIONS * SLOTS]; /* what they say of each slot; 0: it is in none */
#define COMMITTED 1                /* + version */
#define REFUSED 50
#define REPEATED 100 /* + version */

byte published; /* how many of the records are published; with the last of them: */
byte opened; /* how many of them were published when the second generation was opened, + 1; 0: it was not */
#define P_VERSION (published -> r_version[published - 1] : 0)
#define P_GENERATION (opened != 0)
#define P_SLOT (published && published + 1 != opened -> r_slot[(published -> published - 1 : 0)] : 0)
#define IDLE (hv == P_VERSION && hg == P_GENERATION && hs == P_SLOT && (there[hg] >> hs) == 0)
#define USED_UP (CLOSE_AT > 0 && hg == 0 && hs >= CLOSE_AT)

byte present = BIT(CLIENTS) - 1; /* whose node stands below /clients */
byte gave_up;                    /* whose node says that its transaction is not held any more */
byte graves;                     /* who was buried */

#ifdef LEASES
/* One exclusive lease that covers the table. Client 0 asks for it, and transaction 0 depends on it. */
bool l_node;    /* the request stands */
bool l_granted; /* the data of `leases` names it */
byte l_version; /* the data version of `leases` */
#define DEPENDS(one) (one == 0)
#define NOTHING 0 /* a view of the leases: nothing is granted */
#define HELD 1    /* it is granted, and its node stands */
#define GONE 2    /* it is granted, and its node is gone */
#endif

/* -- the object store --------------------------------------------------------------------------------------------- */

byte staged;         /* whose data files are there */
byte file[VERSIONS]; /* _delta_log/<version>.json: whose actions it carries; 0: it is not there */

/* -- what really happened, for the assertions ----------------------------------------------------------------------- */

byte content[VERSIONS]; /* what was ratified as this version: what anybody reads who reads the log up to the head */
byte at[CLIENTS];       /* the version + 1 as which a transaction was committed */
byte told[CLIENTS];     /* what was answered about it: the version + 1, or: */
#define NOT_COMMITTED 50
byte losses = LOSSES, expiries = EXPIRIES;

/* Scratch of steps that nothing interrupts. */
hidden byte i, one, x, w, out, made, last, group, stop, committed, held, ok, taken, plan[VERSIONS + 1], say[SLOTS];

/* -- what a multi checks ------------------------------------------------------------------------------------------- */

#ifdef NO_HEAD_CHECK
#define HEAD_STANDS true
#else
#define HEAD_STANDS (hv == lv && hg == lg && hs == ls)
#endif
#ifdef LEASES
#ifdef NO_LEASE_VERSION
#define VIEW_STANDS true
#else
#define VIEW_STANDS (l_version == seen)
#endif
#ifdef NO_LEASE_CHECK
#define LEASE_STANDS true
#else
#define LEASE_STANDS ((!HAS(committed, 0) && !held) || l_node)
#endif
#else
#define VIEW_STANDS true
#define LEASE_STANDS true
#endif
#ifdef NO_PRESENCE
#define OWNER_STANDS true
#else
#define OWNER_STANDS HAS(present, me)
#endif
#define MY_RECORD(b) (r_generation[b] == lg && r_slot[b] == last && r_version[b] == lv + made)

/* -- deciding: resolve.resolve, a function of (head, queue, log, view of the leases) ---------------------------------- */

/* out = REFUSED if transaction one, which knows all versions before `from`, cannot come next. */
inline object_to(from) {
#ifdef LEASES
    if
    :: DEPENDS(one) && view != HELD -> out = REFUSED
    :: !DEPENDS(one) && view == HELD -> out = REFUSED; held = 1
    :: else
    fi;
#endif
    w = from;
    do
    :: w >= lv + made || w >= VERSIONS || out || !IS_CHANGE(one) -> break
    :: else -> /* a change conflicts with every change that it does not know */
        if
        :: w < lv && (content[w] & CHANGES & ~BIT(one)) -> out = REFUSED
        :: w >= lv && (plan[w] & CHANGES & ~BIT(one)) -> out = REFUSED
        :: else
        fi;
        w++
    od
}

/* out = REPEATED + version if transaction one was committed before: in this batch, or, for one that was filed again, in the log. */
inline look_for_repetition() {
    w = 0;
    do
    :: w >= VERSIONS || out -> break
    :: else ->
        if
        :: w >= lv && w < lv + made && HAS(plan[w], one) -> out = REPEATED + w
#ifndef NO_MARK
        :: w < lv && w >= since[x] && HAS(marked[lg], i) && HAS(content[w], one) -> out = REPEATED + w
#endif
        :: else
        fi;
        w++
    od
}

/* The slots of `q` on top of the head (lv, lg, ls): what to say[] of each, the plan[] of `made` versions, the last slot + 1. */
inline decide_queue() {
    made = 0; last = ls; group = 0; stop = 0; committed = 0; held = 0; i = ls;
    do
    :: i >= SLOTS || stop -> break
    :: else ->
        if
        :: HAS(q, i) ->
            x = AT(lg, i); one = who[x] - 1; out = 0;
            look_for_repetition();
            if
            :: !out -> object_to(since[x])
            :: else
            fi;
            if
            :: out -> say[i] = out; last = i + 1
            :: !out && group && !IS_CHANGE(one) -> /* blind appends share a version */
                plan[lv + made - 1] = plan[lv + made - 1] | BIT(one);
                committed = committed | BIT(one); say[i] = COMMITTED + lv + made - 1; last = i + 1
            :: !out && !(group && !IS_CHANGE(one)) && made < ROOM && lv + made < VERSIONS ->
                plan[lv + made] = BIT(one);
                committed = committed | BIT(one); say[i] = COMMITTED + lv + made; last = i + 1;
                made++; group = !IS_CHANGE(one)
            :: else -> BOUND(made == ROOM || !HEAD_STANDS); stop = 1
            fi
        :: else
        fi;
        i++
    od
}

/* -- ratifying: one multi ------------------------------------------------------------------------------------------- */

/* taken = the name of the record is; ok = the multi would take effect. */
inline would_ratify() {
    taken = 0; i = 0;
    do
    :: i >= records -> break
    :: else -> taken = taken || MY_RECORD(i); i++
    od;
    ok = HEAD_STANDS && VIEW_STANDS && LEASE_STANDS && !taken && (!direct || OWNER_STANDS)
}

inline ratify() {
    HOLDS(2, lv == hv); /* versions are dense: the next ones are given out */
    i = lv;
    do
    :: i >= lv + made -> break
    :: else ->
        HOLDS(1, content[i] == 0); /* a version is ratified once */
        content[i] = plan[i];
        one = 0;
        do
        :: one >= CLIENTS -> break
        :: else ->
            if
            :: HAS(plan[i], one) ->
                HOLDS(10, at[one] == 0);               /* a transaction is committed once, */
                HOLDS(10, told[one] != NOT_COMMITTED); /* and not after somebody was told that it is not, */
                HOLDS(7, HAS(staged, one));            /* and its files are there */
#ifdef LEASES
                HOLDS(9, (DEPENDS(one) -> l_node && l_granted : !(l_node && l_granted)));
#endif
                at[one] = i + 1
            :: else
            fi;
            one++
        od;
        i++
    od;
    i = (direct -> last : 0);
    do
    :: i >= last -> break
    :: else -> /* slots are decided in their order, each once */
        x = AT(lg, i);
        if
        :: i >= ls && HAS(q, i) -> HOLDS(3, verdict[x] == 0); verdict[x] = say[i]
        :: else -> HOLDS(3, verdict[x] != 0)
        fi;
        i++
    od;
    BOUND(records < RECORDS);
    r_generation[records] = lg; r_slot[records] = last; r_version[records] = lv + made;
    r_batch[records] = me + 1; r_direct[records] = (direct -> tx + 1 : 0);
    records++;
    hv = lv + made; hs = last; hg = lg
}

/* After a lost reply and a barrier: ok = the record of that name is of this very batch; taken = there is one. */
inline look_for_batch() {
    ok = 0; taken = 0; i = 0;
    do
    :: i >= records -> break
    :: else -> taken = taken || MY_RECORD(i); ok = ok || (MY_RECORD(i) && r_batch[i] == me + 1); i++
    od;
#ifdef NO_BATCH_ID
    ok = 1
#endif
}

/* -- publishing ----------------------------------------------------------------------------------------------------- */

/* out = what record lp makes of version v: the intents of its slots, or the one it carries. */
inline render() {
    i = 0; out = 0;
    do
    :: i >= r_slot[lp] || r_direct[lp] -> break
    :: else ->
        x = AT(r_generation[lp], i);
        if
        :: verdict[x] == COMMITTED + v -> out = out | BIT(who[x] - 1)
        :: else
        fi;
        i++
    od;
    if
    :: r_direct[lp] -> out = BIT(r_direct[lp] - 1)
    :: else
    fi
}

/* A plain put: whatever is there is written over. */
inline put() {
    HOLDS(5, v < hv && content[v] == out);                 /* what is published is what was ratified, */
    HOLDS(5, file[v] == 0 || file[v] == out);              /* and never changes; */
    HOLDS(6, v == 0 || file[(v -> v - 1 : 0)] != 0); /* after the version before it */
    file[v] = out
}

/* One multi: `published` moves up, and the slots that need nothing more are removed. */
inline raise() {
    HOLDS(6, published <= lp); /* it only moves up, */
    i = 0;
    do
    :: i >= r_version[lp] -> break
    :: else -> HOLDS(6, file[i] != 0); i++ /* to what is there */
    od;
    published = lp + 1;
    there[r_generation[lp]] = there[r_generation[lp]] & ~(BIT(r_slot[lp]) - 1)
}

/* -- slots ------------------------------------------------------------------------------------------------------------ */

/* A new one in generation cg for transaction tx. */
inline new_slot() {
    i = counter[cg]; x = AT(cg, i);
    BOUND(i < SLOTS);
    who[x] = tx + 1; since[x] = val; there[cg] = there[cg] | BIT(i);
    if
    :: again -> marked[cg] = marked[cg] | BIT(i)
    :: else
    fi;
    counter[cg] = i + 1;
    cs = i + 1
}

/* ok = transaction tx has a slot in that generation; it is the claim then. */
inline find_in(generation) {
    i = 0; ok = 0;
    do
    :: i >= SLOTS || ok -> break
    :: else ->
        if
        :: HAS(there[generation], i) && who[AT(generation, i)] == tx + 1 -> cg = generation; cs = i + 1; ok = 1
        :: else -> i++
        fi
    od
}

/* ok = some record tells of transaction tx: the version + 1 in `out`, 0 if it was refused. */
inline search_records() {
    ok = 0; out = 0; i = 0;
    do
    :: i >= GENERATIONS * SLOTS -> break
    :: else ->
        if
        :: who[i] == tx + 1 && verdict[i] ->
            ok = 1;
            out = (verdict[i] == REFUSED -> 0 : (verdict[i] >= REPEATED -> verdict[i] - REPEATED : verdict[i] - COMMITTED) + 1)
        :: else
        fi;
        i++
    od;
    i = 0;
    do
    :: i >= records -> break
    :: else ->
        if
        :: r_direct[i] == tx + 1 -> ok = 1; out = r_version[i]
        :: else
        fi;
        i++
    od
}

#if CLOSE_AT > 0
/* One multi: the next generation takes the place of one that is used up, decided and published (IDLE). ZooKeeper removes no node with children. */
inline open_generation() {
    if
#ifdef NOT_DRAINED
    :: hs == P_SLOT && hv == P_VERSION ->
#else
    :: IDLE ->
#endif
        HOLDS(3, there[0] == 0); /* no slot is left in it */
        opened = published + 1; hg = 1; hs = 0
    :: else
    fi
}
#endif

/* -- answers ---------------------------------------------------------------------------------------------------------- */

/* `out`: the version + 1, or 0 for a refusal. A success is never reported as a failure, nor the other way round. */
inline answer() {
    HOLDS(12, at[tx] == out);
    HOLDS(10, told[tx] == 0 || told[tx] == (out -> out : NOT_COMMITTED)); /* all are told the same */
    told[tx] = (out -> out : NOT_COMMITTED);
    got = out
}

/* What is kept between two rounds of a client is its claim and what it was told. */
inline forget() {
    lv = 0; lg = 0; ls = 0; q = 0; lp = 0; v = 0; top = 0; known = 0
#ifdef LEASES
    ; if
    :: !cached -> view = 0; seen = 0
    :: else
    fi
#endif
}

#ifdef LEASES
/* `leases` and what it names, or the last such look if nothing was granted in it. */
inline look_at_leases() {
    if
    :: cached
    :: atomic {
        true ->
        seen = l_version; view = (l_granted -> (l_node -> HELD : GONE) : NOTHING); cached = (view == NOTHING) }
    fi
}
#endif

/* What came of a step. */
#define NO 1
#define YES 2
#define UNSURE 3
#define AGAIN 4

/* One multi that ratifies what is queued. `effect`: whether it takes effect if it can; `told_so`: whether the reply arrives. */
inline try_to_ratify(effect, told_so) {
    d_step {
        decide_queue();
        would_ratify();
        res = (told_so -> (ok && last > ls -> YES : NO) : UNSURE);
        if
        :: effect && ok && last > ls -> ratify()
        :: else
        fi
    }
}

/* The same on the fast path: transaction tx alone, without a slot. */
inline try_directly(effect, told_so) {
    d_step {
        direct = 1; made = 0; last = ls; out = 0; held = 0; one = tx; committed = BIT(tx);
        object_to(val);
        made = 1; plan[lv] = BIT(tx);
        would_ratify();
        ok = ok && !out;
        res = (told_so || out -> (ok -> YES : NO) : UNSURE);
        if
        :: effect && ok -> ratify()
        :: else
        fi
    }
}

/* One multi that files transaction tx, if its owner stands. */
inline try_to_file(effect, told_so) {
    d_step {
        res = (told_so -> (OWNER_STANDS && hg == cg -> YES : (OWNER_STANDS -> AGAIN : NO)) : UNSURE);
        if
        :: effect && OWNER_STANDS && hg == cg -> new_slot()
        :: else
        fi;
        if
        :: res == UNSURE -> cs = 0
        :: else
        fi
    }
}

/* Whoever waits helps when its patience is over, so that others' turn is anybody's. */
#ifdef NO_HELP
#define MY_TURN (cs && hg == cg && cs == hs + 1)
#else
#define MY_TURN true
#endif

/* What a client is here for. */
#define OWNER 0  /* to see its transaction through */
#define ASKER 1  /* to find out what became of another's transaction */
#define SECOND 2 /* to commit another's transaction, which may have been committed, under the same id */
#define HELPER 3 /* to decide and to publish what others leave */

#ifdef LIVE
byte dead; /* those that will not do another step */
#define ALIVE provided (!HAS(dead, _pid - 1))
#else
#define ALIVE
#endif

proctype Client(byte me; byte tx; byte role) ALIVE {
    byte cg, cs;      /* the claim: generation, slot + 1 (0: none) */
    byte val;         /* the first version that the intent has to be compared with */
    bool again;       /* it says that it was filed again */
    byte got;         /* the version + 1 that was heard */
    bool direct;      /* what is to be ratified has no slot */
    byte lv, lg, ls;  /* the head as read */
    byte q;           /* the slots as listed */
    byte lp, v, top;  /* publishing: the record, the version that is put next, the first that is not */
    bool known;       /* the content is what was decided here */
    byte res;         /* what came of the last step */
#ifdef WITHDRAWN
    bool takes_back;  /* its owner withdraws it */
#endif
    bool was, filed;  /* for I10: it was committed, it had an undecided slot when it was asked */
#ifdef LEASES
    byte view, seen;  /* the leases as looked at, and at which version */
    bool cached;      /* nothing was granted: good for as long as that version stands */
#endif

    if
    :: role == HELPER -> goto await
    :: role == ASKER || role == SECOND -> goto ask
    :: else
    fi;

#ifdef LEASES
    if
    :: me == 0 ->
        l_node = 1;
        d_step { /* the grant checks that the request stands, and moves the version */
            if
            :: l_node -> l_granted = 1; l_version++
            :: else
            fi
        }
    :: else
    fi;
#endif

stage: /* data files, their names carry the transaction's id; compared with everything up to the head that is read */
    if
    :: d_step { val = hv; cg = hg }
    fi;
    staged = staged | BIT(tx);

#ifdef DIRECT
    /* -- the fast path: one multi, if nothing waits and nothing is in publication ------------------------------------- */
    if
    :: goto filing
    :: atomic { role == OWNER && IDLE && !USED_UP -> lv = hv; lg = hg; ls = hs }
    fi;
#ifdef LEASES
    look_at_leases();
#endif
    atomic {
        if
        :: try_directly(true, true)
        :: losses > 0 -> losses--; try_directly(true, false)
        :: losses > 0 -> losses--; try_directly(false, false)
        fi
    }
    if
    :: res == YES -> goto ratified_directly
    :: res == NO -> d_step { forget(); direct = 0 }; goto filing
    :: res == UNSURE
    fi;
    d_step { /* after a barrier: the record of that name tells whose it is */
        last = ls; made = 1;
        look_for_batch();
        res = (ok -> YES : NO);
        again = !ok && !taken;
        if
        :: !ok -> forget(); direct = 0
        :: else
        fi
    }
    if
    :: res == NO -> goto filing
    :: res == YES
    fi;
ratified_directly:
    if
    :: d_step { out = lv + 1; answer(); v = lv; top = lv + 1; known = 1 }
    fi;
    goto publish_mine;
#endif

filing: /* one multi: the slot is made, if the owner stands and its generation is there */
#if CLOSE_AT > 0
    if
    :: USED_UP -> /* once it has waited for that long enough, it files in it all the same */
        if
        :: d_step { open_generation() }
        :: true
        fi
    :: else
    fi;
    cg = hg; /* the head is read again where its generation is not there any more */
#endif
    atomic {
        if
        :: try_to_file(true, true)
        :: losses > 0 -> losses--; try_to_file(true, false)
        :: losses > 0 -> losses--; try_to_file(false, false)
        fi
    }
    if
    :: res == YES -> goto await
    :: res == NO -> goto restore
    :: res == AGAIN -> goto filing
    :: res == UNSURE
    fi;
#ifdef NO_GUID_SEARCH
    goto filing;
#endif
    d_step { /* after a barrier: look for the GUID */
        find_in(cg);
        res = (ok -> YES : NO);
        again = again || !ok /* it never took effect, or it is decided and cleaned up already */
    }
    if
    :: res == YES -> goto await
    :: res == NO -> goto filing
    fi;

restore: /* its session is over: it stands there again, unless it was buried */
    if
    :: d_step {
            if
#ifndef NO_GRAVE_CHECK
            :: HAS(graves, me) -> /* TransactionExpired, unless a lost request took effect and was decided */
                res = NO; search_records();
                if
                :: !ok -> out = 0
                :: else
                fi;
                answer()
#endif
            :: else -> present = present | BIT(me); res = YES
            fi
    }
    fi;
    if
    :: res == YES -> goto filing
    :: res == NO && !got -> goto done
    :: res == NO && got -> goto await
    fi;

await:
    if
    :: atomic { MY_TURN && hs < counter[hg] -> lv = hv; lg = hg; ls = hs; res = 0 }; goto help
    :: atomic { published < records -> lp = published; res = 0 }; goto publish
#ifdef NO_PUBLISH_ORDER
    :: atomic { published + 1 < records -> lp = published + 1; res = 0 }; goto publish
#endif
    :: role != HELPER && got && P_VERSION >= got -> goto acknowledge
    :: role != HELPER && cs && !got && (hg > cg || hs >= cs) -> goto hear
    :: role == HELPER && timeout -> goto done /* nobody can do anything any more */
#ifdef WITHDRAWN
    :: role == OWNER && cs && !got && !takes_back -> takes_back = 1; goto await /* its owner does not want it any more, unless it is decided */
#endif
#ifdef GIVING_UP
    :: role == OWNER -> gave_up = gave_up | BIT(me); goto done /* its time is over */
#endif
    fi;

help: /* decide what is queued */
    if
    :: d_step {
            q = there[lg] & ~(BIT(ls) - 1);
            res = (q -> YES : NO);
            if
            :: !q -> forget()
            :: else
            fi
    }
    fi;
    if
    :: res == NO -> goto await
    :: res == YES
    fi;
#ifdef LEASES
    look_at_leases();
#endif
    atomic {
        if
        :: try_to_ratify(true, true)
        :: losses > 0 -> losses--; try_to_ratify(true, false)
        :: losses > 0 -> losses--; try_to_ratify(false, false)
        fi
    }
    if
    :: res == UNSURE -> d_step { /* after a barrier: whose batch is it? */
            decide_queue();
            look_for_batch();
            res = (ok -> YES : NO)
        }
    :: else
    fi;
    if
    :: res == NO -> goto lost
    :: res == YES -> d_step { decide_queue(); v = lv; top = lv + made; known = 1 }
    fi;
publish_mine: /* it is published by who ratified it, where what came before is published */
    if
    :: d_step {
            if
            :: P_VERSION == lv && P_GENERATION == lg && P_SLOT == ls -> lp = published; res = YES
            :: else -> forget(); direct = 0; res = NO
            fi
    }
    fi;
    if
    :: res == YES -> goto putting
    :: res == NO -> goto await
    fi;
lost:
    if
    :: d_step {
#ifdef LEASES
            cached = 0;
#endif
            forget()
    }
    fi;
    goto await;

publish:
    if
    :: d_step { v = (lp -> r_version[(lp -> lp - 1 : 0)] : 0); top = r_version[lp] }
    fi;
putting:
#ifdef RAISE_FIRST
    if
    :: published == lp -> d_step { raise() }
    :: else
    fi;
#endif
    do
    :: v < top -> d_step {
            if
            :: known && direct -> out = BIT(tx)
            :: known && !direct -> decide_queue(); out = plan[v]
            :: else -> render()
            fi;
            put();
            v++
        }
    :: v == top -> break
    od;
    if
    :: d_step {
            if
#ifdef NO_PUBLISHED_CHECK
            :: true -> raise()
#else
            :: published == lp -> raise()
            :: else
#endif
            fi;
            forget(); direct = 0
        }
    fi;
    goto await;

hear: /* the verdict record tells */
    if
    :: d_step {
            x = AT(cg, cs - 1);
            HOLDS(10, verdict[x] != 0); /* whatever the head covers has its verdict */
            out = (verdict[x] == REFUSED -> 0 : (verdict[x] >= REPEATED -> verdict[x] - REPEATED : verdict[x] - COMMITTED) + 1);
            answer()
    }
    fi;
    if
    :: got -> goto await
    :: else -> goto done
    fi;
acknowledge: /* "committed and published": every engine finds it */
    HOLDS(12, HAS(file[got - 1], tx));
    goto done;

ask: /* outcome(tx), after a barrier */
    if
    :: d_step {
            i = 0;
            do
            :: i >= GENERATIONS * SLOTS -> break
            :: else -> filed = filed || (who[i] == tx + 1 && HAS(there[i / SLOTS], i % SLOTS) && verdict[i] == 0); i++
            od;
            was = was || (at[tx] != 0);
            lg = hg
        }
    fi;
    d_step { /* where the generation is gone, so are its slots: all were decided */
        find_in(lg);
        res = (ok -> YES : NO)
    }
    if
    :: res == YES && HAS(there[cg], cs - 1) -> d_step { lg = 0; was = 0; filed = 0 }; goto await /* the intent is read */
    :: res == YES && !HAS(there[cg], cs - 1) -> d_step { cg = 0; cs = 0 }; goto ask
    :: res == NO
    fi;
    d_step {
        search_records();
        res = (ok -> YES : NO);
        if
        :: ok -> answer()
        :: else -> HOLDS(10, !was && !filed) /* "unknown": there is no trace of it */
        fi;
        lg = 0; was = 0; filed = 0
    }
    if
    :: res == YES && got -> goto await
    :: res == NO && role == SECOND -> again = 1; goto stage
    :: else
    fi;
done:
    skip
}

#ifdef COLLECTOR
/* Those whose slots record b decided. */
inline note_record(b) {
    x = (b > 0 && r_generation[(b -> b - 1 : 0)] == r_generation[b] -> r_slot[(b -> b - 1 : 0)] : 0);
    do
    :: x >= r_slot[b] -> break
    :: else -> busy = busy | BIT(who[AT(r_generation[b], x)] - 1); x++
    od
}

inline note_slots(generation) {
    d_step {
        i = 0;
        do
        :: i >= SLOTS -> break
        :: else ->
            if
            :: HAS(there[generation], i) -> busy = busy | BIT(who[AT(generation, i)] - 1)
            :: else
            fi;
            i++
        od
    }
}

/* Owners with a slot, and those with a verdict beyond `published`: read in this order. */
inline look_who_is_busy() {
#ifndef NO_BUSY
    note_slots(0);
#if GENERATIONS > 1
    if
    :: hg > 0 -> note_slots(1)
    :: else
    fi;
#endif
    count = records;
    d_step {
        i = published;
        do
        :: i >= count -> break
        :: else ->
            if
            :: r_direct[i] -> busy = busy | BIT(r_direct[i] - 1)
            :: else -> note_record(i)
            fi;
            i++
        od;
        count = 0
    }
#else
    skip
#endif
}

/* tables/vacuum.py: objects are listed, then their owners are found gone, then busy or not, then the log is read. */
proctype Collector() {
    byte listed, gone, busy, c, count;
    listed = staged;
#ifdef BUSY_FIRST
    look_who_is_busy();
#endif
    do
    :: c < CLIENTS ->
        d_step { /* buried, unless it is there; or it is there and does not hold it any more */
            if
            :: HAS(listed, c) && HAS(present, c) && HAS(gave_up, c) -> gone = gone | BIT(c)
            :: HAS(listed, c) && !HAS(present, c) -> graves = graves | BIT(c); gone = gone | BIT(c)
            :: else
            fi;
            c++
        }
    :: c == CLIENTS -> c = 0; break
    od;
    skip;
#ifndef BUSY_FIRST
    look_who_is_busy();
#endif
    d_step { /* the latest version, ratified ones included */
        i = 0;
        do
        :: i >= CLIENTS -> break
        :: else ->
            if
            :: at[i] -> busy = busy | BIT(i)
            :: else
            fi;
            i++
        od
    }
    do
    :: c < CLIENTS ->
        d_step {
            if
            :: HAS(gone, c) && !HAS(busy, c) -> HOLDS(7, at[c] == 0); staged = staged & ~BIT(c)
            :: else
            fi;
            c++
        }
    :: c == CLIENTS -> break
    od
}
#endif

/* Sessions end, leases are let go or broken, clients die. */
proctype World() {
    byte c;
end:
    do
    :: atomic {
        expiries > 0 -> expiries--;
        select (c : 0 .. CLIENTS - 1);
        present = present & ~BIT(c);
#ifdef LEASES
        l_node = l_node && c > 0;
#endif
        c = 0 }
#ifdef LEASES
    :: l_granted && l_node -> l_node = 0
#endif
#ifdef LIVE
    :: dead == 0 -> dead = BIT(0)
#endif
    od
}

init {
    byte c;
    atomic {
        do
        :: c < CLIENTS -> run Client(c, c, OWNER); c++
        :: else -> break
        od;
#ifdef ASKED
        run Client(CLIENTS, 0, ASKER);
#endif
#ifdef SHARED
        run Client(CLIENTS, 0, SECOND);
#endif
#ifdef HELPED
        run Client(CLIENTS, 0, HELPER);
#endif
#ifdef COLLECTOR
        run Collector();
#endif
#if EXPIRIES > 0 || defined(LEASES) || defined(LIVE)
        run World();
#endif
        c = 0
    }
}

#ifdef LIVE
/* What has to happen in the end, as long as somebody lives (I8): client 0 may die between any two steps. */
ltl decided { [] (hs < counter[0] -> <> (hs == counter[0])) }
ltl seen { [] (published < records -> <> (published == records)) }
ltl answered { <> (told[1] != 0) }
#endif
