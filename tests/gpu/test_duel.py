"""Rounds are paired as they were run."""

import unittest

import duel


def row(net, number, time_us, size=8):
    return {"net": net, "variant": f"duel, round {number}", "config": "ring", "op": "all_reduce", "size_bytes": size, "time_us": time_us}


class Rounds(unittest.TestCase):
    def test_only_whole_rounds_count_and_each_has_its_own_ratio(self):
        # given three rounds of which the last lacks one network, and a row of another kind
        rows = [row("Mesh", 1, 10), row("IB", 1, 20), row("Mesh", 2, 30), row("IB", 2, 20), row("Mesh", 3, 1)]
        rows.append({"net": "Mesh", "variant": "", "op": "set_up", "size_bytes": 4, "time_us": 5})
        found = duel.rounds(rows, ["Mesh", "IB"])
        # then two rounds are left, with ratios of their own
        self.assertEqual(list(found), [("duel", "ring", "all_reduce", 8)])
        medians, quartiles, ratios = duel.summary(found["duel", "ring", "all_reduce", 8], ["Mesh", "IB"])
        self.assertEqual((medians, ratios), ([20, 20], [0.5, 1.5]))
        self.assertEqual(quartiles[1], 1.0)

    def test_one_round_is_its_own_median(self):
        found = duel.rounds([row("Mesh", 1, 30), row("IB", 1, 20)], ["Mesh", "IB"])
        self.assertEqual(duel.summary(next(iter(found.values())), ["Mesh", "IB"])[1], [1.5, 1.5, 1.5])


if __name__ == "__main__":
    unittest.main()
