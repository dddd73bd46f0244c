"""What happens to real nodes of which two send each request, by name: one of them is killed, sleeps or restarts
while the other writes. A request has its pages back when both are fenced, and not before."""

import os
import signal

from scenarios import address, expect_descriptors, start_prefill
from world import ASLEEP, LEASE, Decode, Prefill, descriptors, expect


def start_pair(world, numbers=(1, 2), stops=(None, None)):
    return [start_prefill(world, title=f"source {number}", number=number, source=f"{i}/2", stop=stop)
            for i, number, stop in zip((1, 2), numbers, stops)]


def addresses(*prefills):
    return ",".join(address(prefill) for prefill in prefills)


def serve_both(world, *pair):
    decode = Decode(world, addresses(*pair), title="afterwards", number=12, requests=5, span=0.1, sources=2)
    decode.expect_verified()


def kill_source(world, step):
    """The other one is told to stop, keeps its session, and serves with the restarted one."""
    first, second = start_pair(world, stops=(step, None))
    decode = Decode(world, addresses(first, second), span=1.0, sources=2)
    first.wait_stopped()
    first.kill()
    again = Prefill(world, title="restarted", port=first.port, source="1/2")
    again.wait_up()
    decode.expect_verified()
    decode.expect_dialled_again()
    serve_both(world, again, second)
    again.finish()
    second.finish()


def zombie_source(world, step):
    """While one sleeps beyond the lease, another set takes over and its pages are given to others."""
    first, second = start_pair(world, stops=(step, None))
    third, fourth = start_pair(world, numbers=(3, 4))
    decode = Decode(world, addresses(first, second, third, fourth), requests=40, span=ASLEEP + 1.0, sources=2)
    first.wait_stopped()
    world.sleep(ASLEEP)
    first.resume()
    decode.expect_verified()
    decode.expect_dialled_again()
    serve_both(world, first, second)
    for prefill in (first, second, third, fourth):
        prefill.finish()


def kill_beside(world, step, asleep):
    """One sleeps, the other is killed: the sleeper alone still keeps the pages from coming back."""
    first, second = start_pair(world, stops=(None, step))
    decode = Decode(world, addresses(first, second), span=1.0, sources=2)
    second.wait_stopped()
    first.kill()
    world.sleep(asleep)
    second.resume()
    again = Prefill(world, title="restarted", port=first.port, source="1/2")
    again.wait_up()
    decode.expect_verified()
    decode.expect_dialled_again()
    again.finish()
    second.finish()


def kill_beside_zombie(world, step):
    """Whose lease ends meanwhile."""
    kill_beside(world, step, ASLEEP)


def kill_beside_sleeper(world, step):
    """Who wakes within the lease, and writes on until it is told to stop: into pages that nobody may have yet."""
    kill_beside(world, step, LEASE / 4)


def restart_decode_under_sources(world, step):
    """One source still writes to what is now another process; the other one does not."""
    first, second = start_pair(world, stops=(step, None))
    before = descriptors(second.leader())
    decode = Decode(world, addresses(first, second), span=1.0, sources=2)
    first.wait_stopped()
    decode.kill()
    new = Decode(world, addresses(first, second), title="restarted", span=1.0, sources=2)
    world.wait("the new decode node is there", lambda: new.leader() != 0, 5)
    world.sleep(0.3)  # it has dialled and waits
    first.resume()
    decode.expect_killed()
    new.expect_verified()
    expect_descriptors(world, second, before)
    first.finish()
    second.finish()


def drain_source(world, requests):
    """One takes no new requests and ends; what it refuses the other is told to stop. Both serve again afterwards."""
    first, second = start_pair(world)
    decode = Decode(world, addresses(first, second), requests=int(requests), span=1.5, sources=2)
    decode.wait_up()
    world.sleep(0.4)
    world.seen |= first.processes()
    os.kill(first.leader(), signal.SIGTERM)
    status = first.wait_end()
    expect(status == 0 and "drained; " in first.text(), f"status {status}\n{world.logs()}")
    again = Prefill(world, title="restarted", port=first.port, source="1/2")
    again.wait_up()
    decode.expect_verified()
    decode.expect_dialled_again()
    again.finish()
    second.finish()


STEPS = ("first_posted,1", "writing,10", "sent,3")

# name -> (function, steps)
SOURCES = {
    "kill-source": (kill_source, STEPS),
    "zombie-source": (zombie_source, STEPS),
    "kill-beside-zombie": (kill_beside_zombie, STEPS),
    "kill-beside-sleeper": (kill_beside_sleeper, ("first_posted,1", "write,2", "write,6")),
    "restart-decode-of-two": (restart_decode_under_sources, STEPS),
    "drain-source": (drain_source, ("30", "100")),
}
