"""The closed forms against sums made the long way, in plain Python; and against PyTorch on the CPU where there is one."""

import unittest

import forms

try:
    import torch
except ImportError:
    torch = None

LIMITS = {"i32": (-(1 << 31), (1 << 31) - 1), "i64": (-(1 << 63), (1 << 63) - 1), "u8": (0, 255), "bf16": (0, 256)}
INDICES = [0, 1, 2, 1022, 1023, 1024, 65535, 65536, 16 * (1 << 20) - 1]


class Forms(unittest.TestCase):
    def test_a_total_is_the_sum_of_the_values(self):
        for kind in forms.BYTES:
            for sources in ([0], [0, 2], [1, 3], list(range(6))):
                for i in INDICES:
                    for salt in (0, 1, 999):
                        # given the values that each source fills in, when they are added one by one
                        added = sum(forms.value(i, source, salt, kind) for source in sources)
                        if kind == "u8":
                            added &= 0xFF
                        # then the closed form says the same
                        self.assertEqual(forms.total(i, sources, salt, kind), added, (kind, sources, i, salt))

    def test_values_and_totals_fit_their_type(self):
        for kind, (low, high) in LIMITS.items():
            # bf16 content is only ever made by ranks, not by pairs of ranks
            most = 5 if kind == "bf16" else forms.pair(63, 63)
            sources = list(range(6)) if kind == "bf16" else [most] * 64
            for i in [*range(2048), *INDICES]:
                self.assertTrue(low <= forms.value(i, most, 12345, kind) <= high, (kind, i))
                self.assertTrue(low <= forms.total(i, sources, 12345, kind) <= high, (kind, i))

    def test_sources_places_and_rounds_differ(self):
        for kind in ("i32", "i64"):
            base = forms.value(4711, 3, 7, kind)
            self.assertNotEqual(base, forms.value(4711, 4, 7, kind))
            self.assertNotEqual(base, forms.value(4712, 3, 7, kind))
            self.assertNotEqual(base, forms.value(4711, 3, 8, kind))
            self.assertNotEqual(base, forms.BLANK[kind])
        # and no two pairs of ranks are the same source
        pairs = {forms.pair(a, b) for a in range(64) for b in range(64)}
        self.assertEqual(len(pairs), 64 * 64)

    def test_sizes_become_elements(self):
        self.assertEqual(forms.elements(0, "i32", 6), 0)
        self.assertEqual(forms.elements(4, "i32", 6), 1)
        self.assertEqual(forms.elements(24, "i32", 6), 1)
        self.assertEqual(forms.elements(25, "i32", 6), 2)
        self.assertEqual([forms.kind_of(size) for size in (0, 4, 1001, 65537, 65538)], ["i32", "i32", "u8", "u8", "u8"])

    @unittest.skipUnless(torch, "needs PyTorch")
    def test_tensors_hold_what_numbers_say(self):
        import ops

        device = torch.device("cpu")
        for kind in forms.BYTES:
            given = ops.filled(3000, 5, 11, kind, device, start=100).tolist()
            self.assertEqual(given, [forms.value(i, 5, 11, kind) for i in range(100, 3100)], kind)
            summed = ops.summed(3000, [0, 2, 5], 11, kind, device).tolist()
            self.assertEqual(summed, [forms.total(i, [0, 2, 5], 11, kind) for i in range(3000)], kind)

    @unittest.skipUnless(torch, "needs PyTorch")
    def test_a_wrong_element_is_found_counted_and_named(self):
        import ops

        device = torch.device("cpu")
        # given two wrong elements and a buffer that was never written
        expected = ops.filled(1000, 1, 2, "i32", device)
        got = expected.clone()
        got[500], got[999] = 7, 8
        check = ops.Check()
        # when they are compared, after a right one
        check.compare(expected, expected.clone(), "i32", "right")
        check.compare(got, expected, "i32", "sum")
        check.compare(ops.blank(10, "i32", device), ops.filled(10, 1, 2, "i32", device), "i32", "blank")
        # then all are counted and the first is named
        self.assertEqual((check.checked, check.wrong), (4000 + 4000 + 40, 8 + 40))
        self.assertTrue(check.first.startswith("sum: index 500: got 7, must be "), check.first)


if __name__ == "__main__":
    unittest.main()
