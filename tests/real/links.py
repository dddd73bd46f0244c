"""What happens to real nodes on two hosts when the link between them is bad. Each function takes a World and a
word that says how bad."""

from hosts import Hosts
from world import ASLEEP, Decode, Prefill


def start(world, hosts, **options):
    """A prefill node on host a. Returns it and the address that host b reaches it at."""
    prefill = Prefill(world, host=hosts.address[hosts.a], netns=hosts.a, **options)
    prefill.wait_up()
    return prefill, f"{hosts.address[hosts.a]}:{prefill.port}"


def bad_link(world, how):
    """It is bad from before the first byte on: all arrives, only later."""
    with Hosts(lined=how.startswith("delay")) as hosts:
        kind, _, value = how.partition("=")
        if kind == "delay":
            hosts.tell(f"delay {value}")
        if kind in ("rate", "rate+drop"):
            hosts.limit("30mbit")
        if kind in ("drop", "rate+drop"):
            hosts.drop(int(value))
        prefill, address = start(world, hosts)
        decode = Decode(world, address, requests=24, span=0.4, netns=hosts.b)
        decode.expect_verified()
        if kind == "delay":
            decode.expect_one_session()
        prefill.finish()


def broken_link(world, how):
    """It breaks in the midst of writes for longer than a lease, one way or both, and heals."""
    with Hosts(lined=how != "unplug") as hosts:
        prefill, address = start(world, hosts, stop="write,12")
        decode = Decode(world, address, requests=30, span=ASLEEP + 1.0, netns=hosts.b)
        prefill.wait_stopped()
        if how == "unplug":
            hosts.unplug(False)
        else:
            hosts.tell(f"cut {how}")
        prefill.resume()
        world.sleep(ASLEEP)
        if how == "unplug":
            hosts.unplug(True)
        else:
            hosts.tell("heal")
        judge(world, decode, address, hosts)
        prefill.finish()


def judge(world, decode, address, hosts):
    """It has come through, or crashed in its provider and another one serves."""
    if decode.crashed_in_provider():
        second = Decode(world, address, title="restarted", requests=8, span=0.2, netns=hosts.b)
        second.expect_verified()
    else:
        decode.expect_verified()
        decode.expect_dialled_again()


def vanished_prefill(world, step):
    """It is killed while the link is cut, so that nobody tells the decode node; then it is restarted."""
    with Hosts(lined=True) as hosts:
        prefill, address = start(world, hosts, stop=step)
        decode = Decode(world, address, requests=30, span=ASLEEP + 1.0, netns=hosts.b)
        prefill.wait_stopped()
        hosts.tell("cut both")
        prefill.kill()
        second = Prefill(world, title="restarted", port=prefill.port, host=hosts.address[hosts.a],
                         netns=hosts.a)
        second.wait_up()
        hosts.tell("heal")
        judge(world, decode, address, hosts)
        second.finish()


def vanished_decode(world, step):
    """The prefill node goes on writing to a decode node that is gone without a word, and to the one that
    was started at its address."""
    with Hosts(lined=True) as hosts:
        prefill, address = start(world, hosts, stop=step)
        first = Decode(world, address, netns=hosts.b)
        prefill.wait_stopped()
        hosts.tell("cut both")
        prefill.resume()
        first.kill()
        first.expect_killed()
        hosts.tell("heal")
        second = Decode(world, address, title="restarted", span=0.5, netns=hosts.b)
        second.expect_verified()
        prefill.finish()


# name -> (function, words)
LINKS = {
    "bad-link": (bad_link, ("delay=20", "rate", "drop=10", "rate+drop=5")),
    "broken-link": (broken_link, ("ab", "ba", "both", "unplug")),
    "vanished-prefill": (vanished_prefill, ("first_posted,2", "write,12")),
    "vanished-decode": (vanished_decode, ("first_posted,2", "write,12")),
}
