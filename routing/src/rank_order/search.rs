//! The search for a ring through all nodes with the fewest relayed edges. Pure and bounded.

use crate::{NodeId, RankOrder, Router};

/// Looks at a node that the search for a ring on cables alone may take before it gives up; a step looks at each once
/// or a few times.
const MAX_LOOKS: usize = 40_000_000;
/// Rounds of local improvement.
const MAX_ROUNDS: usize = 64;
/// What one relayed ring edge costs, against one for each hop: more than all hops of a ring can cost together.
const RELAYED: u64 = 1 << 24;
/// What an edge without any route costs.
const NO_ROUTE: u64 = 1 << 40;

/// The best order of these nodes, beginning with the first.
pub(crate) fn best_ring(canonical: &[NodeId], router: &Router) -> Vec<NodeId> {
    let n = canonical.len();
    if n <= 2 {
        return canonical.to_vec();
    }
    // From here on, nodes are their places in natural order.
    let mut costs = vec![vec![0; n]; n];
    for (a, &node) in canonical.iter().enumerate() {
        let distances = router.distances(node);
        for (b, &other) in canonical.iter().enumerate() {
            costs[a][b] = match distances[other.index()] {
                None => NO_ROUTE,
                Some(hops) => hops as u64 + if hops > 1 { RELAYED } else { 0 },
            };
        }
    }
    let ring = if n <= RankOrder::EXACT_NODES {
        exact(&costs)
    } else {
        cables_only(&costs).unwrap_or_else(|| improved(&costs, nearest_first(&costs)))
    };
    // Of both ways round, the one towards the lower neighbour.
    let mut ring = ring;
    if ring[1] > ring[n - 1] {
        ring[1..].reverse();
    }
    ring.into_iter().map(|place| canonical[place]).collect()
}

/// Held and Karp: the cheapest way from node 0 through each set of nodes to each last node.
fn exact(costs: &[Vec<u64>]) -> Vec<usize> {
    let n = costs.len();
    // Node 0 begins; sets are over nodes 1 to n-1, bit k for node k+1.
    let (sets, others) = (1_usize << (n - 1), n - 1);
    let mut best = vec![u64::MAX; sets * others];
    for last in 0..others {
        best[(1 << last) * others + last] = costs[0][last + 1];
    }
    for set in 1..sets {
        for last in (0..others).filter(|last| set >> last & 1 == 1) {
            let so_far = best[set * others + last];
            if so_far == u64::MAX {
                continue;
            }
            for next in (0..others).filter(|next| set >> next & 1 == 0) {
                let entry = &mut best[(set | 1 << next) * others + next];
                *entry = (*entry).min(so_far + costs[last + 1][next + 1]);
            }
        }
    }
    // Back from the whole set; the cost is symmetric, so what is read backwards is a ring as well.
    let mut set = sets - 1;
    let closing = |last: usize| best[(sets - 1) * others + last].saturating_add(costs[last + 1][0]);
    let mut last = (0..others).min_by_key(|&last| closing(last)).unwrap_or(0);
    let mut ring = vec![0, last + 1];
    while set.count_ones() > 1 {
        let rest = set & !(1 << last);
        let target = best[set * others + last];
        let before = (0..others)
            .find(|&before| {
                rest >> before & 1 == 1
                    && best[rest * others + before].saturating_add(costs[before + 1][last + 1]) == target
            })
            .unwrap_or_else(|| rest.trailing_zeros() as usize);
        (set, last) = (rest, before);
        ring.push(last + 1);
    }
    ring
}

/// A ring over cables alone, by depth-first search that goes to the node with the fewest ways on first, and turns
/// back where a node is left with too few. `None` if there is none or the steps run out.
fn cables_only(costs: &[Vec<u64>]) -> Option<Vec<usize>> {
    let n = costs.len();
    let near: Vec<Vec<usize>> = (0..n).map(|a| (0..n).filter(|&b| costs[a][b] == 1).collect()).collect();
    let mut used = vec![false; n];
    used[0] = true;
    let mut ring = vec![0];
    // For each node of the ring so far, what is still to be tried after it, the best last.
    let mut open = vec![choices(&near, &used, 0)];
    for _ in 0..MAX_LOOKS / n {
        match open.last_mut()?.pop() {
            Some(next) => {
                used[next] = true;
                ring.push(next);
                if ring.len() == n {
                    if near[next].contains(&0) {
                        return Some(ring);
                    }
                    open.push(Vec::new());
                } else if promising(&near, &used, next) {
                    open.push(choices(&near, &used, next));
                } else {
                    open.push(Vec::new());
                }
            }
            None => {
                open.pop();
                used[ring.pop()?] = false;
            }
        }
    }
    None
}

/// Free neighbours, the one to be tried first last: fewest free neighbours of its own, then the lowest.
fn choices(near: &[Vec<usize>], used: &[bool], at: usize) -> Vec<usize> {
    let free = |node: usize| near[node].iter().filter(|&&next| !used[next]).count();
    let mut found: Vec<_> = near[at].iter().copied().filter(|&next| !used[next]).collect();
    found.sort_by_key(|&next| std::cmp::Reverse((free(next), next)));
    found
}

/// Whether the ring may still close: every free node can be reached from here and has two nodes to stand between.
fn promising(near: &[Vec<usize>], used: &[bool], at: usize) -> bool {
    let mut reached = vec![false; near.len()];
    let mut open = vec![at];
    let mut count = 0;
    let mut home = false;
    while let Some(node) = open.pop() {
        home |= node != at && near[node].contains(&0);
        for &next in &near[node] {
            if !used[next] && !reached[next] {
                reached[next] = true;
                count += 1;
                open.push(next);
            }
        }
    }
    let usable = |node: usize| near[node].iter().filter(|&&next| !used[next] || next == at || next == 0).count();
    let left = (0..near.len()).filter(|&node| !used[node]);
    home && count == left.clone().count() && left.into_iter().all(|node| usable(node) >= 2)
}

/// From node 0 always to the cheapest free node, the lowest of equals.
fn nearest_first(costs: &[Vec<u64>]) -> Vec<usize> {
    let mut left: Vec<usize> = (1..costs.len()).collect();
    let mut ring = vec![0];
    let mut at = 0;
    while let Some(place) = (0..left.len()).min_by_key(|&place| costs[at][left[place]]) {
        at = left.remove(place);
        ring.push(at);
    }
    ring
}

/// Turns stretches round as long as that makes the ring cheaper.
fn improved(costs: &[Vec<u64>], mut ring: Vec<usize>) -> Vec<usize> {
    let n = ring.len();
    for _ in 0..MAX_ROUNDS {
        let mut better = false;
        for first in 1..n - 1 {
            for last in first + 1..n {
                let (before, after) = (ring[first - 1], ring[(last + 1) % n]);
                let now = costs[before][ring[first]] + costs[ring[last]][after];
                let then = costs[before][ring[last]] + costs[ring[first]][after];
                if then < now {
                    ring[first..=last].reverse();
                    better = true;
                }
            }
        }
        if !better {
            break;
        }
    }
    ring
}
