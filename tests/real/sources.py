"""What happens to real nodes of which two send each request, by name: one of them is killed, sleeps or restarts
while the other writes. A request has its pages back when both are fenced, and not before."""

from scenarios import address, expect_descriptors, start_prefill
from world import ASLEEP, LEASE, Decode, Prefill, descriptors


def start_pair(world, numbers=(1, 2), **options):
    """The first takes the options too."""
    first = start_prefill(world, title=f"source {numbers[0]}", number=numbers[0], source="1/2", **options)
    second = start_prefill(world, title=f"source {numbers[1]}", number=numbers[1], source="2/2")
    return first, second


def addresses(*prefills):
    return ",".join(address(prefill) for prefill in prefills)


def serve_both(world, *pair):
    decode = Decode(world, addresses(*pair), title="afterwards", number=12, requests=5, span=0.1, sources=2)
    decode.expect_verified()


def kill_source(world, step):
    """The other one is told to stop, keeps its session, and serves with the restarted one."""
    first, second = start_pair(world, stop=step)
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
    first, second = start_pair(world, stop=step)
    third, fourth = start_pair(world, numbers=(3, 4))
    decode = Decode(world, addresses(first, second, third, fourth), requests=40, span=ASLEEP + 1.0, sources=2)
    first.wait_stopped()
    world.sleep(ASLEEP)
    first.resume()
    decode.expect_verified()
    serve_both(world, first, second)
    for prefill in (first, second, third, fourth):
        prefill.finish()


def kill_beside(world, step, asleep):
    """One sleeps, the other is killed: the sleeper alone still keeps the pages from coming back."""
    first, second = start_pair(world, stop=step)
    decode = Decode(world, addresses(first, second), span=1.0, sources=2)
    first.wait_stopped()
    second.kill()
    world.sleep(asleep)
    first.resume()
    again = Prefill(world, title="restarted", port=second.port, number=2, source="2/2")
    again.wait_up()
    decode.expect_verified()
    decode.expect_dialled_again()
    first.finish()
    again.finish()


def kill_beside_zombie(world, step):
    """Whose lease ends meanwhile."""
    kill_beside(world, step, ASLEEP)


def kill_beside_sleeper(world, step):
    """Who wakes within the lease, and writes on until it is told to stop: into pages that nobody may have yet."""
    kill_beside(world, step, LEASE / 4)


def restart_decode_under_sources(world, step):
    """One source still writes to what is now another process; the other one does not."""
    first, second = start_pair(world, stop=step)
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


STEPS = ("first_posted,1", "writing,10", "sent,3")

# name -> (function, steps)
SOURCES = {
    "kill-source": (kill_source, STEPS),
    "zombie-source": (zombie_source, STEPS),
    "kill-beside-zombie": (kill_beside_zombie, STEPS),
    "kill-beside-sleeper": (kill_beside_sleeper, STEPS),
    "restart-decode-of-two": (restart_decode_under_sources, STEPS),
}
