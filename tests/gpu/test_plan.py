"""What is run: cases, sizes, expectations."""

import unittest

import plan


class Plan(unittest.TestCase):
    def test_sizes_are_read(self):
        words = ["0", "4", "1K", "8k", "64M", "1001"]
        self.assertEqual([plan.parse_size(word) for word in words], [0, 4, 1024, 8192, 64 << 20, 1001])
        for wrong in ("", "K", "1.5M", "x"):
            with self.assertRaises(ValueError):
                plan.parse_size(wrong)

    def test_every_root_and_distance_up_to_a_limit_and_two_above(self):
        small = plan.cases(["broadcast", "send_recv"], [plan.EVERY_MOST], 6)
        self.assertEqual([case.root for case in small if case.op == "broadcast"], [0, 1, 2, 3, 4, 5])
        self.assertEqual([case.distance for case in small if case.op == "send_recv"], [1, 2, 3, 4, 5])
        large = plan.cases(["broadcast", "send_recv"], [plan.EVERY_MOST + 1], 6)
        self.assertEqual([case.root for case in large if case.op == "broadcast"], [0, 3])
        self.assertEqual([case.distance for case in large if case.op == "send_recv"], [1, 3])
        # and with two nodes no case comes twice
        pair = plan.cases(["broadcast", "send_recv"], [0, plan.MIB], 2)
        self.assertEqual(len(pair), len(set(pair)))
        self.assertEqual([case.distance for case in pair if case.op == "send_recv"], [1, 1])

    def test_a_barrier_comes_once_whatever_the_sizes(self):
        self.assertEqual(len(plan.cases(["barrier"], [4, plan.KIB, plan.MIB], 4)), 1)

    def test_configurations_only_run_what_they_have_an_algorithm_for(self):
        functions = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
                     "broadcast": "Broadcast", "reduce": "Reduce"}
        for config in plan.CONFIGS:
            self.assertTrue(set(config.ops) <= set(plan.ALL), config.name)
            for function in config.expect:
                self.assertIn(function, functions.values(), config.name)
            if config.proto:
                ran = {functions[op] for op in config.ops}
                self.assertEqual(ran, set(config.expect), config.name)
        names = [config.name for config in plan.CONFIGS]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(set(plan.QUICK) <= set(names))


if __name__ == "__main__":
    unittest.main()
