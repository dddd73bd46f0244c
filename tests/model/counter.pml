/*
 * The stamped counter (rule I4), as docs/protocol.md, "Layer counters", gives it: an engine that announces
 * forwards and stamps one word, a poller that may miss values, the core thread that takes values out of
 * their queue, then handles all commands, then acts on the values (core: layer.c; thread: progress.c).
 *
 *   safe   no layer is taken for complete that its forward has not computed
 *   ends   when all is quiet, every layer of each forward that was not aborted is known to be complete, even of an
 *          engine that ends no forward by a command; but a dummy run that goes last may hide a stamp for ever,
 *          and then only FORWARD_END tells
 *
 * Macros take a guard, or a duty of the engine, away: see run.py.
 */
#define FORWARDS 3
#define LAYERS   2
#define DUMMY    7 /* stamped by warm-up and dummy runs: newer than all, and never announced */

mtype = { CHUNK, ABORT };
chan commands = [4] of { mtype, byte };
chan values = [2] of { byte, byte };
byte word_forward, word_layers;
byte read_forward, read_layers; /* what the poller saw last */
byte computed[FORWARDS + 1];
bool aborted[FORWARDS + 1];
bool announced[FORWARDS + 1];
byte complete[FORWARDS + 1];
bool dropped[FORWARDS + 1]; /* the core was told of the abort */
bool over;
bool dummy; /* some dummy run stamped */

inline stamp(f, l)
{
    atomic {
        word_forward = f;
        word_layers = l;
        printf("engine     stamps layer %d of forward %d\n", l, f)
    }
}

active proctype engine()
{
    byte f, l, owed;

    for (f : 1 .. FORWARDS) {
#ifndef CHUNK_LATE
        commands ! CHUNK(f);
        printf("engine     announces forward %d\n", f);
#endif
        if
        :: dummy = true; stamp(DUMMY, LAYERS) /* a dummy run goes first */
        :: skip
        fi;
        l = 0;
        do
        :: l < LAYERS ->
            l++;
            computed[f] = l;
            stamp(f, l);
#ifdef CHUNK_LATE
            if
            :: l == LAYERS -> commands ! CHUNK(f)
            :: else
            fi;
#endif
            if
            :: owed > 0 -> commands ! ABORT(owed); owed = 0 /* of the one before: too late */
            :: else
            fi
        :: l < LAYERS ->
            printf("engine     gives up forward %d\n", f);
            aborted[f] = true;
#ifdef ABORT_LATE
            owed = f;
#else
            commands ! ABORT(f);
#endif
            break
        :: l == LAYERS -> break
        od
    }
    if
    :: owed > 0 -> commands ! ABORT(owed)
    :: else
    fi;
    over = true
}

active proctype poller()
{
end:
    do
    :: atomic { nfull(values) && (word_forward != read_forward || word_layers != read_layers) ->
            read_forward = word_forward;
            read_layers = word_layers;
            values ! read_forward(read_layers)
        }
    od
}

inline advance(f, l)
{
    if
    :: announced[f] && !dropped[f] && complete[f] < l ->
        complete[f] = l;
        printf("core       layer %d of forward %d is complete\n", l, f);
        assert(computed[f] >= l) /* safe */
    :: else
    fi
}

/* layers_tick() */
inline tick(f, l)
{
    if
#ifndef UNANNOUNCED_COUNTS
    :: f == DUMMY || !announced[f] /* advances nothing */
#endif
    :: else ->
        if
        :: f <= FORWARDS -> advance(f, l)
        :: else
        fi;
        for (g : 1 .. FORWARDS) {
            if
            :: g < f -> advance(g, LAYERS) /* the stream went on */
            :: else
            fi
        }
    fi
}

inline handle_commands()
{
    do
    :: commands ? CHUNK(c) -> announced[c] = true
    :: commands ? ABORT(c) -> dropped[c] = true
    :: empty(commands) -> break
    od
}

active proctype core()
{
    byte c, g, f, l;
end:
    do
#ifdef COMMANDS_FIRST
    :: nempty(values) ->
        atomic { handle_commands(); c = 0 }
        do
        :: atomic { nempty(values) -> values ? f(l); tick(f, l); f = 0; l = 0; g = 0 }
        :: empty(values) -> break
        od
#else
    :: nempty(values) ->
        values ? f(l);
        atomic { handle_commands(); tick(f, l); c = 0; f = 0; l = 0; g = 0 }
#endif
    :: atomic { nempty(commands) -> handle_commands(); c = 0 }
    od
}

active proctype end_of_all()
{
    byte g;
end:
    timeout ->
        assert(over);
        for (g : 1 .. FORWARDS) {
            assert(dummy || aborted[g] || complete[g] == LAYERS) /* ends */
        }
}
