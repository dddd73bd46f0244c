"""What happens to real nodes, by name. Each function takes a World and the step at which a node stops."""

import os
import signal

from world import ASLEEP, SANITIZED, Decode, Failure, Prefill, alive, descriptors, expect, state_of


def address(prefill):
    return f"127.0.0.1:{prefill.port}"


def start_prefill(world, **options):
    prefill = Prefill(world, **options)
    prefill.wait_up()
    return prefill


def serve_on(world, prefill, number=12):
    """A node that survived takes a new peer, and all that it gives is right."""
    decode = Decode(world, address(prefill), title="afterwards", number=number, requests=5, span=0.1)
    decode.expect_verified()


# ---- One side is killed at a step, and restarted at the same address ----


def kill_prefill(world, step):
    """The decode node asks the new prefill node for all that the old one had."""
    prefill = start_prefill(world, stop=step)
    decode = Decode(world, address(prefill), span=1.5)
    prefill.wait_stopped()
    before = descriptors(decode.leader())
    prefill.kill()
    second = Prefill(world, title="restarted", port=prefill.port)
    second.wait_up()
    samples = []
    while alive(decode.leader()) and len(samples) < 400:
        samples.append(descriptors(decode.leader()) or 0)
        world.sleep(0.01)
    decode.expect_verified()
    decode.expect_dialled_again()
    # The last ones are those of its end. A session holds some 13; at an early step it lacks a few of them.
    expect(min(samples[-60:-20], default=0) <= before + 4, "descriptors leak:", before, samples)
    second.finish()


def kill_decode(world, step):
    """The prefill node serves the new decode node, and gets its pages back."""
    prefill = start_prefill(world)
    before = descriptors(prefill.leader())
    first = Decode(world, address(prefill), stop=step)
    first.wait_stopped()
    first.kill()
    second = Decode(world, address(prefill), title="restarted", span=0.5)
    first.expect_killed()
    second.expect_verified()
    serve_on(world, prefill)
    expect_descriptors(world, prefill, before)
    prefill.finish()


def expect_descriptors(world, node, before):
    world.wait(f"{node.title} has as many descriptors as before",
               lambda: descriptors(node.leader()) <= before, 5)


# ---- One side sleeps beyond the lease and wakes ----


def zombie_prefill(world, step):
    """While one of two prefill nodes sleeps, the other takes over and its pages are given to others."""
    prefill = start_prefill(world, stop=step, watchdog_ms=1000)  # which a stop is no matter for
    other = start_prefill(world, title="other", number=2)
    decode = Decode(world, f"{address(prefill)},{address(other)}", requests=50, span=ASLEEP + 1.5)
    prefill.wait_stopped()
    world.sleep(ASLEEP)
    prefill.resume()
    decode.expect_verified()
    decode.expect_dialled_again()
    serve_on(world, prefill)
    prefill.finish()
    other.finish()


def zombie_decode(world, step):
    """The prefill node gives the sleeper up and serves another; the sleeper comes back as a new peer."""
    prefill = start_prefill(world)
    before = descriptors(prefill.leader())
    first = Decode(world, address(prefill), requests=30, span=1.5, stop=step)
    first.wait_stopped()
    second = Decode(world, address(prefill), title="other", number=12, requests=20, span=ASLEEP)
    world.sleep(ASLEEP)
    first.resume()
    first.expect_verified()
    first.expect_dialled_again()
    second.expect_verified()
    expect_descriptors(world, prefill, before)
    prefill.finish()


# ---- One side sleeps; the other is killed and restarted at the same address meanwhile ----


def restart_decode_under_writes(world, step):
    """The old session of the prefill node still writes to what is now another process."""
    prefill = start_prefill(world, stop=step)
    first = Decode(world, address(prefill), span=1.0)
    prefill.wait_stopped()
    first.kill()
    second = Decode(world, address(prefill), title="restarted", span=1.0)
    world.wait("the new decode node is there", lambda: second.leader() != 0, 5)
    world.sleep(0.3)  # it has dialled and waits
    prefill.resume()
    first.expect_killed()
    second.expect_verified()
    serve_on(world, prefill)
    prefill.finish()


def restart_prefill_under_sleep(world, step):
    """The decode node wakes up with a session to a process that is gone."""
    prefill = start_prefill(world)
    decode = Decode(world, address(prefill), span=1.0, stop=step)
    decode.wait_stopped()
    prefill.kill()
    second = Prefill(world, title="restarted", port=prefill.port)
    second.wait_up()
    decode.resume()
    decode.expect_verified()
    serve_on(world, second)
    second.finish()


# ---- Ranks ----


def kill_prefill_rank(world, step):
    prefill = start_prefill(world, stop=step)
    decode = Decode(world, address(prefill), span=1.0)
    prefill.wait_stopped()
    end_rank(prefill)
    second = Prefill(world, title="restarted", port=prefill.port)
    second.wait_up()
    decode.expect_verified()
    second.finish()


def kill_decode_rank(world, step):
    prefill = start_prefill(world)
    first = Decode(world, address(prefill), stop=step, target_tp=2)
    first.wait_stopped()
    end_rank(first)
    first.expect_killed()
    second = Decode(world, address(prefill), title="restarted", span=0.5, target_tp=2)
    second.expect_verified()
    prefill.finish()


def end_rank(node):
    """Kill a rank; the leader wakes, says so and ends."""
    ranks = node.ranks()
    expect(ranks, f"{node.title} has no ranks")
    leader = node.leader()
    os.kill(ranks[-1], signal.SIGKILL)
    node.resume()
    node.world.wait(f"{node.title} ends after its rank", lambda: not alive(leader), 5)
    expect(f"(process {ranks[-1]}) was killed by signal 9" in node.text(), node.text())


def zombie_rank(world, step, side):
    """A forward pass that takes longer than the lease ends no session."""
    prefill = start_prefill(world, stop=step if side == "prefill" else None)
    decode = Decode(world, address(prefill), span=1.0, stop=step if side == "decode" else None)
    node = prefill if side == "prefill" else decode
    node.wait_stopped()
    rank = node.ranks()[0]
    os.kill(rank, signal.SIGSTOP)
    world.wait("the rank stops", lambda: state_of(rank) == "T", 2)
    node.resume()
    world.sleep(ASLEEP)
    os.kill(rank, signal.SIGCONT)
    decode.expect_verified()
    decode.expect_one_session()
    prefill.finish()


def zombie_prefill_rank(world, step):
    zombie_rank(world, step, "prefill")


def zombie_decode_rank(world, step):
    zombie_rank(world, step, "decode")


# ---- A provider that never returns ----


def stuck_prefill(world, step):
    """The watchdog ends it, names the call, and the decode node goes on with the next one. At `close` it is
    stuck while it lets a dead decode node go."""
    prefill = Prefill(world, plant=f"stuck:{step}", watchdog_ms=500)
    prefill.wait_up()
    decode = Decode(world, address(prefill), span=1.0)
    if step.startswith("close"):
        decode.wait_up()
        decode.kill()
        decode.expect_killed()
    status = prefill.wait_end()
    call = {"writing": "write", "peer_open": "peer_open", "close": "close"}[step.partition(",")[0]]
    expect(status == 1 and f"watchdog: '{call}' of provider" in prefill.text(), prefill.text())
    second = Prefill(world, title="restarted", port=prefill.port)
    second.wait_up()
    if step.startswith("close"):
        serve_on(world, second)
    else:
        decode.expect_verified()
    second.finish()


# ---- A crash ----


def crash_decode(world, step):
    """It says where, and only a close of tcp;ofi_rxm is taken for the fault that is known of that. Close is called
    when the prefill node is gone; `imm` is found by a poll, `whole` is no call of the transport."""
    prefill = start_prefill(world, **({"stop": "sent,3"} if step.startswith("close") else {}))
    decode = Decode(world, address(prefill), span=0.5, plant=f"crash:{step}")
    step = step.partition(",")[0]
    if step == "close":
        prefill.wait_stopped()
        prefill.kill()
    status = decode.wait_end()
    if SANITIZED:
        told = "Sanitizer" in decode.text() or "runtime error" in decode.text()
        expect(status == 1 and told, decode.text())
        return
    where = {"imm": "inside 'poll' of its", "close": "inside 'close' of its", "whole": "outside any call of its"}
    said = decode.text().count(f"halage: decode node 1: crashed (SIGSEGV at 0x0) {where[step]} transport; ")
    expect(said == 1 and status == 1 and "was killed by signal 11" in decode.text(), status, decode.text())
    known = world.provider == "tcp;ofi_rxm" and step == "close"
    expect(decode.crashed_in_provider() == known, "the test of real links takes it wrongly:", decode.text())


# ---- Too few pages ----


def few_pages(world, side):
    """Requests wait for pages; nothing is lost."""
    least = 32
    prefill = start_prefill(world, **({"pages": least} if side != "decode" else {}))
    decode = Decode(world, address(prefill), requests=30, span=0.1,
                    **({"pages": least} if side != "prefill" else {}))
    decode.expect_verified()
    prefill.finish()


PREFILL_STEPS = ("greeted,1", "requested,1", "admitted,4", "first_posted,1", "first_posted,6",
                 "writing,10", "write,10", "done,3", "all_posted,2", "sent,3")
DECODE_STEPS = ("greeted,1", "request_sent,2", "accepted,2", "first_piece,1", "imm,20", "whole,1",
                "whole,6")

# name -> (function, steps)
LOCAL = {
    "kill-prefill": (kill_prefill, PREFILL_STEPS),
    "kill-decode": (kill_decode, DECODE_STEPS),
    "zombie-prefill": (zombie_prefill, PREFILL_STEPS),
    "zombie-decode": (zombie_decode, DECODE_STEPS),
    "restart-decode": (restart_decode_under_writes, PREFILL_STEPS),
    "restart-prefill": (restart_prefill_under_sleep, DECODE_STEPS),
    "kill-prefill-rank": (kill_prefill_rank, ("first_posted,1", "write,10")),
    "kill-decode-rank": (kill_decode_rank, ("first_piece,1", "whole,3")),
    "zombie-prefill-rank": (zombie_prefill_rank, ("first_posted,1", "admitted,4")),
    "zombie-decode-rank": (zombie_decode_rank, ("first_piece,1", "whole,3")),
    "stuck-prefill": (stuck_prefill, ("writing,5", "peer_open,1", "close,1")),
    "few-pages": (few_pages, ("prefill", "decode", "both")),
}
# Those that came later: the numbers of the others stand.
LATER = {
    "crash-decode": (crash_decode, ("imm,5", "whole,2", "close,1")),
}
