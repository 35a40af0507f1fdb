"""Tables from results, and what counters must show."""

import json
import unittest

import counters
import table

COMMON = {"nodes": 4, "net": "Mesh", "variant": "", "nccl": "2.28.9", "torch": "2.11.0", "checked_bytes": 100, "wrong_bytes": 0}


def row(**fields):
    return {**COMMON, "config": "default", "op": "all_reduce", "size_bytes": 1024, "time_us": 50.0, **fields}


class Table(unittest.TestCase):
    def test_columns_ratio_and_order(self):
        # given Mesh by two configurations and Socket, larger sizes first
        rows = [row(size_bytes=1 << 20, time_us=900.4), row(), row(config="tree", time_us=40.0),
                row(net="Socket", time_us=100.0), row(op="barrier", size_bytes=0, time_us=None)]
        # when they become a table
        lines = table.main_table(rows).splitlines()
        # then empty columns are gone, small sizes come first, and the ratio is Mesh by Socket
        self.assertEqual(lines[0], "| operation | size | Mesh default | Mesh tree | Socket | Mesh / Socket |")
        self.assertEqual(lines[2], "| all-reduce | 1 KiB | 50.0 | 40.0 | 100 | 0.50 |")
        self.assertEqual(lines[3], "| all-reduce | 1 MiB | 900 |  |  |  |")
        self.assertEqual(len(lines), 4)

    def test_roots_distances_and_groups_are_rows_of_their_own(self):
        rows = [row(op="broadcast", root=0), row(op="broadcast", root=2), row(op="send_recv", distance=1),
                row(op="all_reduce", group="0,2")]
        text = table.main_table(rows)
        for words in ("broadcast, root 0", "broadcast, root 2", "send-recv, distance 1", "all-reduce, ranks 0,2"):
            self.assertIn(f"| {words} |", text)

    def test_the_document_has_versions_protocols_variants_and_the_kill(self):
        rows = [
            row(), row(config="ring-LL128", time_us=70.0, chosen="RING/LL128"), row(variant="split", wrong_bytes=8),
            {"meta": True, **COMMON, "driver": "580.1", "gpu": "GPU X", "cuda": "13.0", "plugin": "0.1.0", "mps": "1"},
            {"part": "kill", "rank": 1, "victim": 2, "seconds": 1.5, "abort_seconds": 0.2, "error": "DistBackendError: a|b\nmore"},
        ]
        text = table.document(table.read([("x", "\n".join(map(json.dumps, rows)))]))
        for words in ("- 4 nodes, Mesh, plugin 0.1.0, NCCL 2.28.9, PyTorch 2.11.0, CUDA 13.0, driver 580.1, GPU X, MPS on",
                      "3 steps, 300 bytes checked, 8 wrong", "### 4 nodes, forced protocols", "- ring-LL128: RING/LL128",
                      "| split | 4 | 1 | 100 | 8 |", "| 1 | 2 | 1.50 | 0.2 | DistBackendError: a/b |"):
            self.assertIn(words, text)

    def test_sizes_are_exact(self):
        self.assertEqual([table.size_text(size) for size in (0, 4, 1001, 1024, 65537, 1 << 20, (1 << 20) - 4)],
                         ["0 B", "4 B", "1001 B", "1 KiB", "65537 B", "1 MiB", "1048572 B"])

    def test_a_broken_line_is_named(self):
        with self.assertRaisesRegex(ValueError, "r.jsonl:2"):
            table.read([("r.jsonl", "{}\n{broken\n")])
        with self.assertRaisesRegex(ValueError, "r.jsonl:1"):
            table.read([("r.jsonl", "[]\n")])


class Counters(unittest.TestCase):
    def test_relayed_bytes_must_have_been_forwarded(self):
        good = {"node": "node0", "exit_status": 0, "direct_bytes": 5, "relayed_bytes": 3, "forwarded_bytes": 3}
        self.assertEqual(counters.problems([good], True), [])
        self.assertEqual(len(counters.problems([{**good, "relayed_bytes": 0}], True)), 1)
        self.assertEqual(len(counters.problems([{**good, "forwarded_bytes": 0}], True)), 1)
        self.assertEqual(counters.problems([{**good, "relayed_bytes": 0, "forwarded_bytes": 0}], False), [])
        self.assertEqual(len(counters.problems([{**good, "exit_status": 1}], True)), 1)
        none = {**good, "direct_bytes": None, "relayed_bytes": None, "forwarded_bytes": None}
        self.assertEqual(len(counters.problems([none], True)), 4)
        self.assertEqual(len(counters.problems([], False)), 1)


if __name__ == "__main__":
    unittest.main()
