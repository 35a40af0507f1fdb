"""NCCL's log lines, as its 2.28 writes them."""

import pathlib
import tempfile
import unittest

import nccl_log

GOOD = """\
vm:41:41 [0] NCCL INFO NCCL_ALGO set by environment to allreduce:tree
vm:41:41 [0] NCCL INFO mesh[I01] nccl-mesh 0.1.0 /x/libnccl_net_mesh.so abi v11 pid 41
vm:41:90 [0] NCCL INFO Channel 00/0 : 3[0] -> 0[0] [receive] via NET/Mesh/0
vm:41:90 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/Mesh/0/Shared
vm:41:90 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}
vm:41:90 [0] NCCL INFO AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}
"""


class Log(unittest.TestCase):
    def test_a_good_log_has_no_problems(self):
        summary = nccl_log.summarise(GOOD, "Mesh")
        self.assertEqual((summary["channels"], summary["others"]), (2, {}))
        self.assertEqual((summary["plugin"], summary["settings"]), ("0.1.0", ["NCCL_ALGO=allreduce:tree"]))
        self.assertEqual(nccl_log.problems({"rank0.log": summary}, "Mesh"), [])

    def test_any_other_way_is_a_problem(self):
        others = ["0[0] -> 2[0] [send] via NET/Socket/0", "0[0] -> 2[0] via SHM/direct/direct",
                  "0[0] -> 2[0] [send] via NET/MeshX/0", "0[0] -> 2[0] via P2P/IPC"]
        for other in others:
            summary = nccl_log.summarise(f"{GOOD}vm:41:90 [0] NCCL INFO Channel 02/0 : {other}\n", "Mesh")
            found = nccl_log.problems({"rank0.log": summary}, "Mesh")
            self.assertEqual(len(found), 1, other)
            self.assertIn("0 -> 2", found[0])

    def test_nothing_is_a_problem_too(self):
        self.assertEqual(len(nccl_log.problems({}, "Mesh")), 1)
        self.assertEqual(len(nccl_log.problems({"rank0.log": nccl_log.summarise("", "Mesh")}, "Mesh")), 2)
        # the sockets have no banner
        self.assertEqual(len(nccl_log.problems({"rank0.log": nccl_log.summarise("", "Socket")}, "Socket")), 1)

    def test_choices_are_held_against_what_was_asked_for(self):
        used = nccl_log.chosen(GOOD)
        self.assertEqual(used, {"AllReduce": {"TREE/LL", "RING/SIMPLE"}})
        self.assertEqual(nccl_log.unexpected(used, {"AllGather": ("PAT", None)}), [])
        self.assertEqual(len(nccl_log.unexpected(used, {"AllReduce": ("TREE", None)})), 1)
        self.assertEqual(len(nccl_log.unexpected(used, {"AllReduce": ("TREE", "LL128")})), 2)

    def test_a_growing_log_is_read_once(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rank0.log"
            tail = nccl_log.Tail(path)
            self.assertEqual(tail.new(), "")
            path.write_text("one\n")
            self.assertEqual(tail.new(), "one\n")
            with path.open("a") as file:
                file.write("two\n")
            self.assertEqual((tail.new(), tail.new()), ("two\n", ""))


if __name__ == "__main__":
    unittest.main()
