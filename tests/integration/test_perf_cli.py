#!/usr/bin/env python3
"""`halage perf` as a user calls it: a tiny run over libfabric's TCP provider with every byte looked at, alone
and against the bare loop, to one and to several peers, in host memory and in a GPU's of a double; a wrong byte that
is planted is noticed; JSON and TSV have their shape; what is asked for and cannot be is refused in a sentence; a signal
leaves what was done; either side may die at any moment, and the other one ends or serves on."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import unittest

DOUBLE = os.environ.get("FAKE_CUDA_DIR", "")
BIN = pathlib.Path(os.environ["HALAGE_BIN_DIR"])
SMALL = ["--provider", "tcp", "--span", 5, "--pages", 8, "--no-latency"]


def perf(*words, environment=()):
    return subprocess.run([str(w) for w in [BIN / "halage", "perf", *words]], capture_output=True,
                          text=True, timeout=60, check=False, env={**os.environ, **dict(environment)})


def on_gpu(*words):
    return perf(*words, "--memory", "cuda", environment={"LD_LIBRARY_PATH": DOUBLE})


class Server:
    """`halage perf serve`, in a context."""

    def __enter__(self):
        self.process = subprocess.Popen([str(BIN / "halage"), "perf", "serve", "--listen", "127.0.0.1:0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[1]
        return self

    def end(self):
        """Its exit status and what it printed to standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=20)
        return self.process.returncode, err

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def start(*words):
    return subprocess.Popen([str(w) for w in [BIN / "halage", "perf", *words]], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


class Run(unittest.TestCase):
    def expect_rows(self, result, count):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        root = json.loads(result.stdout)  # text goes to standard error
        self.assertEqual(len(root["rows"]), count)
        for row in root["rows"]:
            self.assertGreater(row["sent"], 0)
            self.assertEqual(row["total_bytes"], row["sent"] * row["bytes"])
            self.assertAlmostEqual(row["us_per_xfer"] * row["mxfers_per_second"], 1, 6)
            self.assertAlmostEqual(row["gb_per_second"],
                                   row["mxfers_per_second"] * row["bytes"] / 1e3, 6)
        return root

    def test_every_byte_arrives_in_both_orders(self):
        result = perf("run", "--local", "--check", "--rounds", 2, "--sizes", "1,1k,64k", *SMALL,
                      "--json", "-")
        root = self.expect_rows(result, 6)
        self.assertEqual({row["order"] for row in root["rows"]}, {"contiguous", "scattered"})
        for row in root["rows"]:
            self.assertGreater(row["checked_bytes"], 0)
            self.assertEqual(row["wrong_bytes"], 0)
            self.assertEqual(row["rounds"], 2)
        self.assertNotIn("ratio", root["rows"][0])
        self.assertRegex(result.stderr, r"check: \d+ bytes looked at, 0 wrong\n")

    def test_a_wrong_byte_is_noticed(self):
        result = perf("run", "--local", "--check", "--plant", "--rounds", 1, "--sizes", "1k",
                      "--order", "scattered", *SMALL)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"halage perf run: [1-9]\d* bytes are wrong at the target\n")
        self.assertIn("WRONG", result.stdout)

    def test_peers_and_rails_share_the_work(self):
        result = perf("run", "--local", "--check", "--rounds", 1, "--sizes", "4k", "--peers", 3,
                      "--rails", 2, "--order", "scattered", *SMALL, "--json", "-")
        root = self.expect_rows(result, 1)
        self.assertEqual((root["peers"], root["rails"]), (3, 2))
        self.assertEqual(root["rows"][0]["sent"] % 3, 0)
        self.assertEqual(root["rows"][0]["wrong_bytes"], 0)

    def test_pairs_with_the_bare_loop_give_ratios(self):
        with tempfile.TemporaryDirectory() as directory:
            table = pathlib.Path(directory) / "perf.tsv"
            result = perf("run", "--local", "--bare", "--pairs", 3, "--sizes", "1k,16k", "--order",
                          "contiguous", *SMALL, "--json", "-", "--write", table)
            lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
        root = self.expect_rows(result, 2)
        for row in root["rows"]:
            ratio = row["ratio"]
            self.assertEqual(len(ratio["pairs"]), 3)
            self.assertEqual(ratio["median"], sorted(ratio["pairs"])[1])
            self.assertLessEqual(ratio["q1"], ratio["median"])
            self.assertLessEqual(ratio["median"], ratio["q3"])
            self.assertGreater(row["bare_mxfers_per_second"], 0)
        self.assertEqual([line.split("\t")[2] for line in lines], ["bytes", "1024", "16384"])
        self.assertEqual({line.count("\t") for line in lines}, {11})
        self.assertEqual(lines[1].split("\t")[5:8], ["-"] * 3)  # no latency was measured

    def test_latency_is_a_distribution(self):
        result = perf("run", "--local", "--rounds", 1, "--sizes", "256", "--span", 20, "--order",
                      "contiguous", "--provider", "tcp", "--json", "-")
        latency = self.expect_rows(result, 1)["rows"][0]["latency_us"]
        self.assertGreater(latency["p50"], 0)
        self.assertLessEqual(latency["p50"], latency["p90"])
        self.assertLessEqual(latency["p90"], latency["p99"])

    def test_writes_that_are_taken_in_parts_arrive(self):
        result = perf("run", "--local", "--check", "--rounds", 2, "--sizes", "64", "--window", 31, "--order",
                      "scattered", "--provider", "tcp", "--span", 5, "--pages", 100, "--no-latency",
                      "--json", "-")
        row = self.expect_rows(result, 1)["rows"][0]
        self.assertEqual(row["wrong_bytes"], 0)

    def test_layers_go_when_they_are_stamped(self):
        result = perf("layer", "--local", "--provider", "tcp", "--forwards", 1, "--layers", 3,
                      "--pages", 2, "--page-bytes", 512, "--layer-us", 30000, "--json", "-")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = json.loads(result.stdout)["rows"]
        self.assertEqual([row["counters"] for row in rows], ["core", "thread"])
        for row in rows:
            self.assertEqual(row["handed_us"]["count"], 3)
            self.assertEqual(row["sent_us"]["count"], 1)
            self.assertEqual(row["ready_us"]["count"], 1)
            self.assertGreater(row["handed_us"]["p50"], 0)
            # If nobody looked at the counter, the end of the forward would be what sends its layers.
            self.assertLess(row["handed_us"]["p50"], 45000)
            self.assertLessEqual(row["handed_us"]["p50"], row["posted_us"]["p50"])

    @unittest.skipIf(DOUBLE == "", "no double of libcuda in this build")
    def test_memory_of_gpus_is_written_and_checked(self):
        result = on_gpu("run", "--local", "--staged", "--check", "--rounds", 1, "--sizes", "1k", *SMALL,
                        "--peers", 2, "--json", "-")
        root = self.expect_rows(result, 2)
        self.assertEqual((root["memory"], root["staged"]), ("cuda", True))
        for row in root["rows"]:
            self.assertGreater(row["checked_bytes"], 0)
            self.assertEqual(row["wrong_bytes"], 0)
        self.assertIn("memory of GPUs staged through pinned host memory", result.stderr)
        result = on_gpu("run", "--local", "--staged", "--check", "--plant", "--rounds", 1, "--sizes",
                        "1k", "--order", "scattered", *SMALL)
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"halage perf run: [1-9]\d* bytes are wrong at the target\n")

    @unittest.skipIf(DOUBLE == "", "no double of libcuda in this build")
    def test_layers_in_memory_of_a_gpu_go(self):
        result = on_gpu("layer", "--local", "--staged", "--provider", "tcp", "--forwards", 1, "--layers", 3,
                        "--pages", 2, "--page-bytes", "1k", "--layer-us", 1000, "--json", "-")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        root = json.loads(result.stdout)
        self.assertEqual((root["memory"], root["staged"], root["page_bytes"]), ("cuda", True, 1024))
        self.assertEqual([row["handed_us"]["count"] for row in root["rows"]], [3, 3])

    @unittest.skipIf(DOUBLE == "", "no double of libcuda in this build")
    def test_gpus_that_cannot_be_used_are_refused(self):
        for words, sentence in ((("run", "--local", *SMALL), "add --staged, which moves pages through pinned"),
                                (("run", "--local", "--staged", "--device", 9), "there is no GPU 9")):
            result = on_gpu(*words)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn(sentence, result.stderr)

    def test_two_commands_meet(self):
        with Server() as server:
            for _ in range(2):
                result = perf("run", server.address, "--check", "--rounds", 1, "--sizes", "4k", *SMALL)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertEqual(server.end(), (130, ""))

    def test_a_second_one_hears_that_it_must_wait(self):
        with Server() as server, start("run", server.address, "--provider", "tcp", "--sizes", "4k", "--rounds",
                                       1000, "--span", 20, "--no-latency") as first:
            first.stderr.readline()  # progress: it is under way
            second = perf("run", server.address, *SMALL)
            self.assertEqual(second.returncode, 1, second.stderr)
            self.assertRegex(second.stderr, r"says: 127\.0\.0\.1:\d+ is served now, and one at a time is: try again")
            self.assertIsNone(first.poll())
            first.send_signal(signal.SIGINT)
            out, err = first.communicate(timeout=20)
            self.assertEqual(first.returncode, 130, out + err)
            self.assertEqual(server.end(), (130, ""))  # and a signal of the other side's is no failure

    def test_a_side_that_is_killed_leaves_no_one_waiting(self):
        words = ("--provider", "tcp")
        kinds = [("run", "--sizes", "4k", "--rounds", 1000, "--span", 20), ("layer", "--forwards", 10000, "--layer-us", 100)]
        for kind, wait in zip(kinds, (0.4, 0.1)):
            with Server() as server:
                with start(kind[0], server.address, *words, *kind[1:]) as asker:
                    time.sleep(wait)
                    asker.kill()
                    asker.communicate()
                # The next one is served, maybe after a moment.
                for _ in range(100):
                    result = perf("run", server.address, "--rounds", 1, "--sizes", "4k", "--order",
                                  "scattered", *SMALL)
                    if "is served now" not in result.stderr:
                        break
                self.assertEqual(result.returncode, 0, result.stderr)
                with start(kind[0], server.address, *words, *kind[1:]) as asker:
                    time.sleep(wait)
                    server.process.kill()
                    out, err = asker.communicate(timeout=40)
                    self.assertEqual(asker.returncode, 1, out + err)

    def test_a_signal_leaves_what_was_done(self):
        with subprocess.Popen([str(w) for w in [BIN / "halage", "perf", "run", "--local",
                                                "--provider", "tcp", "--rounds", 1000, "--sizes",
                                                "64,4k", "--no-latency", "--span", 30]],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
            run.stderr.readline()  # progress: a round is under way
            run.send_signal(signal.SIGINT)
            out, err = run.communicate(timeout=20)
        self.assertEqual(run.returncode, 130, out + err)
        self.assertIn("interrupted: the last row is partial", out)


class Refusals(unittest.TestCase):
    CASES = [
        (["perf", "fly"], "unknown kind 'fly'; valid: serve run layer"),
        (["perf", "run"], "give the address of 'halage perf serve', or --local"),
        (["perf", "run", "--local", "a:1"], "or --local, not both"),
        (["perf", "serve", "--node", "here"], "--node: 'here': write an IPv4 or IPv6 address"),
        (["perf", "run", "--local", "--node", "127.0.0.1:7"], "--node: '127.0.0.1:7': write an IPv4 or IPv6 address"),
        (["perf", "layer", "--local", "--node", "eth0"], "--node: 'eth0': write an IPv4 or IPv6 address"),
        (["perf", "serve", "--listen", "here"], "--listen: 'here' is not an address"),
        (["perf", "run", "a:1", "b:1"], "unknown argument 'b:1'; one address is enough"),
        (["perf", "run", "--local", "--memory", "disk"], "--memory: unknown kind 'disk'; valid: host cuda"),
        (["perf", "run", "--local", "--staged"], "--staged: is for memory of GPUs: add --memory cuda"),
        (["perf", "layer", "--local", "--device", "1"], "--device: is for memory of GPUs: add --memory cuda"),
        (["perf", "run", "--local", "--bare", "--memory", "cuda"], "--bare has host memory"),
        (["perf", "run", "--local", "--sizes", "4k,"], "--sizes: '4k,': write at most 32 sizes"),
        (["perf", "run", "--local", "--sizes", "4kiB"], "--sizes: '4kiB': write at most"),
        (["perf", "run", "--local", "--sizes", "2GiB"], "each up to 1GiB"),
        (["perf", "layer", "--local", "--page-bytes", "4x"], "--page-bytes: '4x': write a size such as 16k, up to 1GiB"),
        (["perf", "layer", "--local", "--page-bytes", "0"], "--page-bytes: '0': write a size"),
        (["perf", "run", "--local", "--json", "-", "--write", "-"], "--json and --write: both write to -"),
        (["perf", "run", "--local", "--peers", "65"], "--peers: '65': write a whole number, 1 to 64"),
        (["perf", "run", "--local", "--bare", "--peers", "2"], "--bare has one peer and one rail"),
        (["perf", "run", "--local", "--bare", "--rounds", "2"], "--rounds is for runs without --bare"),
        (["perf", "run", "--local", "--order", "up"], "--order: 'up': write contiguous, scattered or both"),
        (["perf", "run", "--local", "--wide"], "unknown option '--wide'; valid: --local"),
        (["perf", "run", "--local", "--provider", "pigeon"], "there is no provider pigeon"),
        (["perf", "run", "127.0.0.1:99999"], "'127.0.0.1:99999' is not an address: write host:port"),
        (["perf", "layer", "--local", "--counters", "gpu"], "--counters: 'gpu': write core, thread or both"),
        (["perf", "layer", "--local", "--cpu", "1023"], "--cpu: 1023: not a processor that may be used here"),
        (["perf", "serve", "--listen", "0.0.0.0:0"], "listen on loopback, or allow it"),
    ]

    def test_each_in_one_sentence(self):
        for words, sentence in self.CASES:
            result = subprocess.run([str(BIN / "halage"), *words], capture_output=True, text=True,
                                    timeout=20, check=False)
            self.assertEqual(result.returncode, 2, words)
            self.assertIn(sentence, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_failures_name_the_cause(self):
        result = perf("run", "127.0.0.1:9", "--rounds", 1)
        self.assertEqual(result.returncode, 1)
        self.assertIn("cannot reach 127.0.0.1:9", result.stderr)
        for program in (["perf", "serve"], ["node", "prefill"]):
            elsewhere = subprocess.run([str(BIN / "halage"), *program, "--listen=203.0.113.7:7117"], capture_output=True,
                                       text=True, timeout=20, check=False)
            self.assertEqual(elsewhere.returncode, 1, elsewhere)
            self.assertIn("cannot assign requested address: give an address that this host has\n", elsewhere.stderr)
        self.assertIn(": start 'halage perf serve' there, or give --local", result.stderr)

    def test_one_file_is_not_written_in_two_ways(self):
        with tempfile.TemporaryDirectory() as directory:
            out = pathlib.Path(directory) / "out"
            out.write_text("")
            result = perf("run", "--local", "--json", out, "--write", f"{directory}/./out")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--json and --write: both write to", result.stderr)

    def test_who_is_no_perf_hears_so(self):
        with Server() as server:
            host, port = server.address.rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=10) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                stranger.recv(1)  # an answer, or the end
            result = perf("run", server.address, "--rounds", 1, "--sizes", "4k", *SMALL)
            self.assertEqual(result.returncode, 0, result.stderr)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            result = perf("run", f"127.0.0.1:{mute.getsockname()[1]}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("does not answer: is it 'halage perf serve'", result.stderr)

    def test_a_table_that_is_lost_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([str(w) for w in [BIN / "halage", "perf", "run", "--local", "--rounds", 1,
                                                      "--sizes", "4k", *SMALL]],
                                    stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("the table cannot be printed", result.stderr)


if __name__ == "__main__":
    unittest.main()
