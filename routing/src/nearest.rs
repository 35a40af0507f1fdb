//! "Did you mean": the known name nearest to one that is not known.

/// The known name within an edit distance of a third of its length (at least 2), if any; the first of equals.
pub fn nearest<'a>(unknown: &str, known: &[&'a str]) -> Option<&'a str> {
    let lowered = unknown.to_ascii_lowercase();
    let mut best: Option<(usize, &'a str)> = None;
    for &name in known {
        let distance = edit_distance(&lowered, name);
        let limit = (name.len() / 3).max(2);
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours, each counted once.
fn edit_distance(a: &str, b: &str) -> usize {
    // Longer names than any key of ours are far from all of them; the cut bounds the work on hostile input.
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replace = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replace.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{edit_distance, nearest};

    #[test]
    fn distance_counts_a_swap_once() {
        assert_eq!(edit_distance("adress", "address"), 1);
        assert_eq!(edit_distance("nmae", "name"), 1);
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("same", "same"), 0);
    }

    #[test]
    fn far_names_have_no_neighbour() {
        assert_eq!(nearest("adress", &["name", "address"]), Some("address"));
        assert_eq!(nearest("Relay", &["name", "relay"]), Some("relay"));
        assert_eq!(nearest("frobnicate", &["name", "relay", "control"]), None);
    }
}
