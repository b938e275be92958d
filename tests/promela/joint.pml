/* Transactions over two tables: their slots are made in one multi, and they are decided in one multi over both heads.
 *
 * Steps are those of table.pml: one call of ZooKeeper or of the object store each. Transactions 0..JOINTS-1 are over both
 * tables, the next LEFT over table 0 alone, the last RIGHT over table 1 alone. Each has a version of its own. What a
 * transaction conflicts with is every version that it does not know, unless it is one of APPENDS.
 */
#include "common.pml"

#ifndef JOINTS
#define JOINTS 1
#endif
#ifndef LEFT
#define LEFT 1
#endif
#ifndef RIGHT
#define RIGHT 0
#endif
#ifndef APPENDS
#define APPENDS 0
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef CLOSE_AT
#define CLOSE_AT 0 /* slots after which the first generation of table 0 is used up; 0: never */
#endif
#define CLIENTS (JOINTS + LEFT + RIGHT)
#ifndef SLOTS
#define SLOTS (CLIENTS + LOSSES)
#endif
#ifndef VERSIONS
#define VERSIONS CLIENTS
#endif
#ifndef RECORDS
#define RECORDS (CLIENTS + LOSSES)
#endif
#if CLOSE_AT > 0
#define GENERATIONS 2
#else
#define GENERATIONS 1
#endif

#define AT(table, generation, slot) (((table) * GENERATIONS + (generation)) * SLOTS + (slot))
#define PLACE(table, generation) ((table) * GENERATIONS + (generation))
#define RECORD(table, record) ((table) * RECORDS + (record))
#define VERSION(table, version) ((table) * VERSIONS + (version))
#define IS_JOINT(one) ((one) < JOINTS)

/* -- ZooKeeper, for each of the two tables ------------------------------------------------------------------------ */

byte hv[2], hg[2], hs[2];             /* heads */
byte counter[2 * GENERATIONS];        /* of slots */
byte there[2 * GENERATIONS];          /* which slots stand */
byte marked[2 * GENERATIONS];         /* which say "filed again" */
byte who[2 * GENERATIONS * SLOTS];    /* transaction + 1 */
byte since[2 * GENERATIONS * SLOTS];  /* the first version that it does not know */
byte verdict[2 * GENERATIONS * SLOTS];/* what the verdict records say of it */
#define COMMITTED 1
#define REFUSED 50
#define REPEATED 100

byte records[2];
byte r_generation[2 * RECORDS], r_slot[2 * RECORDS], r_version[2 * RECORDS], r_batch[2 * RECORDS];
byte published[2]; /* how many records of a table are published */

#define USED_UP (CLOSE_AT > 0 && hg[0] == 0 && hs[0] >= CLOSE_AT)
#define DRAINED (published[0] == records[0] && (there[PLACE(0, hg[0])] >> hs[0]) == 0)

#define HEAD_STANDS(k) (hv[k] == lv[k] && hg[k] == lg[k] && hs[k] == ls[k])

/* -- the object store ------------------------------------------------------------------------------------------------ */

byte file[2 * VERSIONS]; /* the transaction + 1 of a version */

/* -- what really happened ---------------------------------------------------------------------------------------------- */

byte content[2 * VERSIONS];
byte at[2 * CLIENTS]; /* the version + 1 as which a transaction was committed in a table */
byte told[CLIENTS];
#define DONE 1
#define NOT_COMMITTED 50
byte losses = LOSSES;

hidden byte i, j, one, x, out, ok, made, last, stop, say[2 * SLOTS], plan[2 * VERSIONS];

#define NO 1
#define YES 2
#define UNSURE 3

/* What transaction one in slot x of table k, generation lg[k], comes to on top of version `top`. */
inline judge(tb, slot, top) {
    x = AT(tb, lg[tb], slot); one = who[x] - 1; out = 0; j = 0;
    do
    :: j >= top || j >= VERSIONS || out -> break
    :: else ->
        if
        :: j < lv[tb] && j >= since[x] && HAS(marked[PLACE(tb, lg[tb])], slot) && content[VERSION(tb, j)] == one + 1 -> out = REPEATED + j
        :: j >= lv[tb] && plan[VERSION(tb, j)] == one + 1 -> out = REPEATED + j
        :: else -> j++
        fi
    od;
    if
    :: !out && top > since[x] && !HAS(APPENDS, one) -> out = REFUSED
    :: else
    fi
}

/* The slots of table k up to the first of a transaction over both: made versions, last decided slot + 1. */
inline decide_queue(tb) {
    made = 0; last = ls[tb]; stop = 0; i = ls[tb];
    do
    :: i >= SLOTS || stop -> break
    :: else ->
        if
        :: HAS(q[tb], i) && IS_JOINT(who[AT(tb, lg[tb], i)] - 1) -> stop = 1
        :: HAS(q[tb], i) && !IS_JOINT(who[AT(tb, lg[tb], i)] - 1) ->
            judge(tb, i, lv[tb] + made);
            if
            :: !out && lv[tb] + made >= VERSIONS -> BOUND(!HEAD_STANDS(tb)); stop = 1
            :: !out && lv[tb] + made < VERSIONS ->
                plan[VERSION(tb, lv[tb] + made)] = one + 1; say[tb * SLOTS + i] = COMMITTED + lv[tb] + made; made++; last = i + 1
            :: else -> say[tb * SLOTS + i] = out; last = i + 1
            fi
        :: else
        fi;
        i++
    od
}

/* ok = the name of the record in table k is free; `end` is what it decides last. */
inline name_is_free(tb, upto, after) {
    i = 0;
    do
    :: i >= records[tb] -> break
    :: else ->
        ok = ok && !(r_generation[RECORD(tb, i)] == lg[tb] && r_slot[RECORD(tb, i)] == upto && r_version[RECORD(tb, i)] == after);
        i++
    od
}

/* One table's part of a ratifying multi: slots ls[k]..end-1 say say[], versions lv[k]..lv[k]+count-1 are plan[]. */
inline ratify(tb, upto, count) {
    HOLDS(2, lv[tb] == hv[tb]);
    i = lv[tb];
    do
    :: i >= lv[tb] + count -> break
    :: else ->
        HOLDS(1, content[VERSION(tb, i)] == 0);
        content[VERSION(tb, i)] = plan[VERSION(tb, i)];
        one = plan[VERSION(tb, i)] - 1;
        HOLDS(10, at[tb * CLIENTS + one] == 0 && told[one] != NOT_COMMITTED);
        at[tb * CLIENTS + one] = i + 1;
        i++
    od;
    i = 0;
    do
    :: i >= upto -> break
    :: else ->
        x = AT(tb, lg[tb], i);
        if
        :: i >= ls[tb] && HAS(q[tb], i) ->
            HOLDS(3, verdict[x] == 0 && hg[tb] == lg[tb] && say[tb * SLOTS + i] != 0); /* in their order, each once */
            verdict[x] = say[tb * SLOTS + i]
        :: else -> HOLDS(3, verdict[x] != 0)
        fi;
        i++
    od;
    BOUND(records[tb] < RECORDS);
    x = RECORD(tb, records[tb]);
    r_generation[x] = lg[tb]; r_slot[x] = upto; r_version[x] = lv[tb] + count; r_batch[x] = me + 1;
    records[tb]++;
    hv[tb] = lv[tb] + count; hs[tb] = upto; hg[tb] = lg[tb]
}

/* A transaction over both is committed in both, or in none. */
inline all_or_none() {
    i = 0;
    do
    :: i >= JOINTS -> break
    :: else -> HOLDS(11, (at[i] == 0) == (at[CLIENTS + i] == 0)); i++
    od
}

/* One multi that decides what is first in table k and of that table alone. */
inline try_alone(effect, told_so) {
    d_step {
        decide_queue(k);
        ok = HEAD_STANDS(k);
        name_is_free(k, last, lv[k] + made);
        res = (told_so -> (ok -> YES : NO) : UNSURE);
        if
        :: effect && ok -> ratify(k, last, made)
        :: else
        fi;
        end[k] = last; version[k] = lv[k] + made
    }
}

inline say_nothing() {
    i = 0;
    do
    :: i >= 2 * SLOTS -> break
    :: else -> say[i] = 0; i++
    od
}

/* The decision on the transaction over both in slot sj[k] of each table k: say[] and plan[]. */
inline decide_both() {
    say_nothing();
    last = 0; /* in which tables it makes a version */
    judge(0, sj[0], lv[0]);
    say[sj[0]] = out;
    judge(1, sj[1], lv[1]);
    say[SLOTS + sj[1]] = out;
    if
#ifdef REFUSED_ALONE
    :: false
#else
    :: (say[sj[0]] || say[SLOTS + sj[1]]) && !(say[sj[0]] >= REPEATED && say[SLOTS + sj[1]] >= REPEATED) ->
        say[sj[0]] = REFUSED; say[SLOTS + sj[1]] = REFUSED /* what is refused in one is refused in both */
#endif
    :: else ->
        if
        :: !say[sj[0]] && lv[0] < VERSIONS -> plan[VERSION(0, lv[0])] = one + 1; say[sj[0]] = COMMITTED + lv[0]; last = last | 1
        :: else
        fi;
        if
        :: !say[SLOTS + sj[1]] && lv[1] < VERSIONS ->
            plan[VERSION(1, lv[1])] = one + 1; say[SLOTS + sj[1]] = COMMITTED + lv[1]; last = last | 2
        :: else
        fi
    fi;
    version[0] = lv[0] + HAS(last, 0); version[1] = lv[1] + HAS(last, 1); end[0] = sj[0] + 1; end[1] = sj[1] + 1
}

/* ONE multi over both heads. */
inline try_both(effect, told_so) {
    d_step {
        decide_both();
#ifdef ONE_HEAD_ONLY
        ok = HEAD_STANDS(k);
#else
        ok = HEAD_STANDS(0) && HEAD_STANDS(1);
#endif
        name_is_free(0, end[0], version[0]);
        name_is_free(1, end[1], version[1]);
        res = (told_so -> (ok -> YES : NO) : UNSURE);
        if
        :: effect && ok ->
#ifdef TWO_MULTIS
            if
            :: k == 0 -> ratify(0, end[0], version[0] - lv[0])
            :: else -> ratify(1, end[1], version[1] - lv[1])
            fi;
#else
            ratify(0, end[0], version[0] - lv[0]);
            ratify(1, end[1], version[1] - lv[1]);
#endif
            all_or_none()
        :: else
        fi
    }
}

/* One multi on table k alone that refuses a transaction over both: what it says of the other table is not so. */
inline try_to_refuse(effect, told_so) {
    d_step {
        say_nothing();
        end[k] = sj[k] + 1; version[k] = lv[k];
        say[k * SLOTS + sj[k]] = REFUSED;
        ok = HEAD_STANDS(k);
        name_is_free(k, end[k], lv[k]);
        res = (told_so -> (ok -> YES : NO) : UNSURE);
        if
        :: effect && ok -> ratify(k, end[k], 0); all_or_none()
        :: else
        fi
    }
}

/* After a lost reply and a barrier: whose batch is it? */
inline look_for_batch() {
    d_step {
        res = NO; i = 0;
        do
        :: i >= records[k] -> break
        :: else ->
            x = RECORD(k, i);
            if
            :: r_generation[x] == lg[k] && r_slot[x] == end[k] && r_version[x] == version[k] && r_batch[x] == me + 1 -> res = YES
            :: else
            fi;
            i++
        od
    }
}

/* A slot for transaction tx in table k. */
inline new_slot(tb) {
    i = counter[PLACE(tb, fg[tb])]; x = AT(tb, fg[tb], i);
    BOUND(i < SLOTS);
    who[x] = tx + 1; since[x] = val[tb];
    there[PLACE(tb, fg[tb])] = there[PLACE(tb, fg[tb])] | BIT(i);
    if
    :: again -> marked[PLACE(tb, fg[tb])] = marked[PLACE(tb, fg[tb])] | BIT(i)
    :: else
    fi;
    counter[PLACE(tb, fg[tb])] = i + 1;
    cs[tb] = i + 1
}

/* cs[k] = the slot + 1 of transaction tx that stands in table k, generation fg[k]. */
inline find(tb) {
    i = 0; cs[tb] = 0;
    do
    :: i >= SLOTS || cs[tb] -> break
    :: else ->
        if
        :: HAS(there[PLACE(tb, fg[tb])], i) && who[AT(tb, fg[tb], i)] == tx + 1 -> cs[tb] = i + 1
        :: else -> i++
        fi
    od
}

/* cs[k] = the slot + 1 of transaction tx in table k that has a verdict. */
inline search(tb) {
    i = 0; cs[tb] = 0;
    do
    :: i >= SLOTS -> break
    :: else ->
        if
        :: who[AT(tb, fg[tb], i)] == tx + 1 && verdict[AT(tb, fg[tb], i)] -> cs[tb] = i + 1
        :: else
        fi;
        i++
    od;
    HOLDS(10, cs[tb] != 0)
}

/* The first slot in the listing of table k. */
inline first_of(tb) {
    i = ls[tb];
    do
    :: i >= SLOTS || HAS(q[tb], i) -> break
    :: else -> i++
    od
}

inline forget() {
    if
    :: d_step {
            lv[0] = 0; lv[1] = 0; lg[0] = 0; lg[1] = 0; ls[0] = 0; ls[1] = 0; q[0] = 0; q[1] = 0; sj[0] = 0; sj[1] = 0;
            end[0] = 0; end[1] = 0; version[0] = 0; version[1] = 0; lp = 0; v = 0; k = 0; res = 0
        }
    fi
}

#define MINE(k) (IS_JOINT(tx) || (k) == (tx >= JOINTS + LEFT))
#define TOLD(k) (verdict[AT(k, fg[k], (cs[k] -> cs[k] - 1 : 0))])
#define HEARD(k) (cs[k] && TOLD(k))
#define IS_THERE(k) (!MINE(k) || hg[k] == fg[k]) /* the generation in which it files */
#define REFUSED_IN(k) (HEARD(k) && TOLD(k) == REFUSED)

proctype Client(byte me; byte tx) {
    byte cs[2], fg[2], val[2]; /* the claim in each table: slot + 1, generation; what it was validated through */
    bool again;
    byte lv[2], lg[2], ls[2], q[2];
    byte sj[2];                /* the slots of the transaction over both that is to be decided */
    byte end[2], version[2];   /* the names of the records */
    byte k, lp, v, res;

    if
    :: MINE(0) -> d_step { val[0] = hv[0]; fg[0] = hg[0] }
    :: else
    fi;
    if
    :: MINE(1) -> d_step { val[1] = hv[1]; fg[1] = hg[1] }
    :: else
    fi;

filing: /* one multi: the slots in all tables */
#if CLOSE_AT > 0
    if
    :: MINE(0) && USED_UP -> /* once it has waited for that long enough, it files all the same */
        if
        :: d_step {
                if
                :: DRAINED -> HOLDS(3, there[PLACE(0, 0)] == 0); hg[0] = 1; hs[0] = 0
                :: else
                fi
            }
        :: true
        fi
    :: else
    fi;
    fg[0] = hg[0];
#endif
    atomic {
        if
        :: !IS_THERE(0) || !IS_THERE(1) -> res = NO
        :: IS_THERE(0) && IS_THERE(1) -> d_step {
                if
                :: MINE(0) -> new_slot(0)
                :: else
                fi;
                if
                :: MINE(1) -> new_slot(1)
                :: else
                fi;
                res = YES
            }
        :: losses > 0 && IS_THERE(0) && IS_THERE(1) -> losses--; d_step {
                if
                :: MINE(0) -> new_slot(0)
                :: else
                fi;
                if
                :: MINE(1) -> new_slot(1)
                :: else
                fi;
                cs[0] = 0; cs[1] = 0;
                res = UNSURE
            }
        :: losses > 0 -> losses--; res = UNSURE
        fi
    }
    if
    :: res == YES -> goto await
    :: res == NO -> goto filing
    :: res == UNSURE
    fi;
    if /* after a barrier: look for the GUID, table by table */
    :: MINE(0) -> d_step { find(0); res = 0 }
    :: else
    fi;
    if
    :: MINE(1) -> d_step { find(1); res = 0 }
    :: else
    fi;
    if
    :: !cs[0] && !cs[1] -> again = 1; goto filing /* it never took effect, or is decided and cleaned up already */
    :: else
    fi;
    if /* where its slot is gone meanwhile, the verdict record tells */
    :: MINE(0) && !cs[0] -> d_step { search(0); res = 0 }
    :: MINE(1) && !cs[1] -> d_step { search(1); res = 0 }
    :: else
    fi;

await:
    forget();
    if
    :: atomic { hs[0] < counter[PLACE(0, hg[0])] -> k = 0; lv[0] = hv[0]; lg[0] = hg[0]; ls[0] = hs[0] }; goto help
    :: atomic { hs[1] < counter[PLACE(1, hg[1])] -> k = 1; lv[1] = hv[1]; lg[1] = hg[1]; ls[1] = hs[1] }; goto help
    :: atomic { published[0] < records[0] -> k = 0; lp = published[0] }; goto publish
    :: atomic { published[1] < records[1] -> k = 1; lp = published[1] }; goto publish
    :: REFUSED_IN(0) || REFUSED_IN(1) -> goto refused
    :: (HEARD(0) || !MINE(0)) && (HEARD(1) || !MINE(1)) && !REFUSED_IN(0) && !REFUSED_IN(1) -> goto committed
    fi;

help: /* what is first in table k? */
    if
    :: d_step {
            q[k] = there[PLACE(k, lg[k])] & ~(BIT(ls[k]) - 1);
            res = NO;
            if
            :: q[k] ->
                first_of(k);
                sj[k] = i;
                res = (IS_JOINT(who[AT(k, lg[k], i)] - 1) -> UNSURE : YES)
            :: else
            fi
        }
    fi;
    if
    :: res == NO -> goto await
    :: res == YES -> goto alone
    :: res == UNSURE
    fi;
    if /* its other table */
    :: d_step { lv[1 - k] = hv[1 - k]; lg[1 - k] = hg[1 - k]; ls[1 - k] = hs[1 - k] }
    fi;
    d_step {
        q[1 - k] = there[PLACE(1 - k, lg[1 - k])] & ~(BIT(ls[1 - k]) - 1);
        x = who[AT(k, lg[k], sj[k])];
        i = ls[1 - k];
        do
        :: i >= SLOTS || (HAS(q[1 - k], i) && who[AT(1 - k, lg[1 - k], i)] == x) -> break
        :: else -> i++
        od;
        ok = (i < SLOTS);
        sj[1 - k] = (ok -> i : 0);
        first_of(1 - k);
        res = (ok -> (i == sj[1 - k] -> YES : UNSURE) : NO)
#ifdef NOT_FIRST
        ; res = (ok -> YES : NO)
#endif
    }
    if
    :: res == YES -> goto both
    :: res == NO -> goto lacking /* it has no slot there (any more) */
    :: res == UNSURE -> goto before
    fi;

before: /* what stands before it in its other table is decided first */
    if
    :: d_step {
            k = 1 - k; first_of(k); sj[k] = i;
            res = (IS_JOINT(who[AT(k, lg[k], i)] - 1) -> NO : YES)
        }
    fi;
    if
    :: res == NO -> goto await
    :: res == YES
    fi;
alone:
    atomic {
        if
        :: try_alone(true, true)
        :: losses > 0 -> losses--; try_alone(true, false)
        :: losses > 0 -> losses--; try_alone(false, false)
        fi
    }
    goto ratified;
both:
    atomic {
        if
        :: try_both(true, true)
        :: losses > 0 -> losses--; try_both(true, false)
        :: losses > 0 -> losses--; try_both(false, false)
        fi
    }
    goto ratified;
lacking:
    atomic {
        if
        :: try_to_refuse(true, true)
        :: losses > 0 -> losses--; try_to_refuse(true, false)
        :: losses > 0 -> losses--; try_to_refuse(false, false)
        fi
    }
ratified:
    if
    :: res == UNSURE -> look_for_batch()
    :: else
    fi;
    goto await; /* publication is anybody's */

publish:
    if
    :: d_step { v = (lp -> r_version[RECORD(k, (lp -> lp - 1 : 0))] : 0) }
    fi;
    do
    :: v < r_version[RECORD(k, lp)] -> d_step {
            i = 0; out = 0;
            do
            :: i >= r_slot[RECORD(k, lp)] -> break
            :: else ->
                x = AT(k, r_generation[RECORD(k, lp)], i);
                if
                :: verdict[x] == COMMITTED + v -> out = who[x]
                :: else
                fi;
                i++
            od;
            HOLDS(5, v < hv[k] && content[VERSION(k, v)] == out && (file[VERSION(k, v)] == 0 || file[VERSION(k, v)] == out));
            HOLDS(6, v == 0 || file[VERSION(k, (v -> v - 1 : 0))] != 0);
            file[VERSION(k, v)] = out;
            v++
        }
    :: v == r_version[RECORD(k, lp)] -> break
    od;
    if
    :: d_step {
            if
            :: published[k] == lp ->
                published[k] = lp + 1; x = PLACE(k, r_generation[RECORD(k, lp)]);
                there[x] = there[x] & ~(BIT(r_slot[RECORD(k, lp)]) - 1)
            :: else
            fi
        }
    fi;
    goto await;

committed:
    if
    :: d_step {
            HOLDS(12, (!MINE(0) || at[tx]) && (!MINE(1) || at[CLIENTS + tx]));
            told[tx] = DONE
        }
    fi;
    goto done;
refused:
    if
    :: d_step {
            HOLDS(12, !at[tx] && !at[CLIENTS + tx]);
            told[tx] = NOT_COMMITTED
        }
    fi;
done:
    skip
}

init {
    byte c;
    atomic {
        do
        :: c < CLIENTS -> run Client(c, c); c++
        :: else -> break
        od;
        c = 0
    }
}
