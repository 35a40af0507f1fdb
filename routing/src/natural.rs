//! The order in which people count names: runs of digits compare as numbers, so that `node2` comes before `node10`.
//! Ties between routes are broken in this order of the nodes' stable ids, because it is the order in which ranks are
//! most often given out, and because it does not depend on who listed the nodes.

use std::cmp::Ordering;

/// Compares two names; total, and equal only for equal strings.
pub(crate) fn natural_cmp(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    while let (Some(&x), Some(&y)) = (left.first(), right.first()) {
        if x.is_ascii_digit() && y.is_ascii_digit() {
            let (number_left, rest_left) = split_digits(left);
            let (number_right, rest_right) = split_digits(right);
            let order = number_left.len().cmp(&number_right.len()).then_with(|| number_left.cmp(number_right));
            if order != Ordering::Equal {
                return order;
            }
            (left, right) = (rest_left, rest_right);
        } else if x != y {
            return x.cmp(&y);
        } else {
            (left, right) = (&left[1..], &right[1..]);
        }
    }
    // What is left differs in length at most; names that differ in leading zeros alone fall through to plain order.
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

/// The leading digits without their leading zeros, and what follows them.
fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let zeros = digits.iter().position(|&byte| byte != b'0').unwrap_or(digits.len());
    (&digits[zeros..], rest)
}

#[cfg(test)]
mod tests {
    use super::natural_cmp;
    use std::cmp::Ordering;

    #[test]
    fn digits_count_as_numbers() {
        let mut names = vec!["node10", "node2", "node02", "a", "node", "node1x", "node1"];
        names.sort_by(|a, b| natural_cmp(a, b));
        assert_eq!(names, ["a", "node", "node1", "node1x", "node02", "node2", "node10"]);
    }

    #[test]
    fn only_equal_strings_are_equal() {
        assert_eq!(natural_cmp("n01", "n01"), Ordering::Equal);
        assert_ne!(natural_cmp("n01", "n1"), Ordering::Equal);
        assert_eq!(natural_cmp("", "0"), Ordering::Less);
    }
}
