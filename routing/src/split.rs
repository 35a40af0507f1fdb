//! How flows divide over their lanes when each puts less where more is under way.
//!
//! The busiest link is to be as little busy as it can be. That alone is a poor guide, as one flow by itself often cannot change it; the
//! sum of a high power of all loads is a good one: it is smooth and convex, so that moving one flow's shares after the other finds its
//! least.

use crate::{Lane, Topology};

/// The power. The higher, the closer to the busiest link alone.
const POWER: i32 = 16;
/// Most rounds over all flows.
const ROUNDS: usize = 64;
/// Halvings of the interval in which the share to move is searched.
const HALVINGS: usize = 40;
/// What is too little to move.
const NOTHING: f64 = 1e-7;

/// One flow, its lanes and what each carries.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) weight: f64,
    pub(crate) shares: Vec<f64>,
    /// By lane: its links and their directions, see [`directions`].
    pub(crate) hops: Vec<Vec<usize>>,
}

/// The links of a lane, each in its direction: twice the link's index, and one more from its second end to its first.
pub(crate) fn directions(topology: &Topology, lane: &Lane) -> Vec<usize> {
    let way =
        |hop: &crate::Hop| 2 * hop.link.index() + usize::from(topology.link(hop.link).ends[0].address != hop.from);
    lane.hops.iter().map(way).collect()
}

/// Moves shares so that the busiest link is less busy, for its speed. What nothing is better than stays exactly as it is.
pub(crate) fn balance(topology: &Topology, ways: Vec<&mut Way>) {
    let fastest = topology.links().iter().filter_map(|link| link.speed_mbps).max().unwrap_or(1);
    let speed = |link: &crate::Link| f64::from(link.speed_mbps.unwrap_or(fastest)) / f64::from(fastest);
    let speeds: Vec<f64> = topology.links().iter().flat_map(|link| [speed(link); 2]).collect();
    let mut loads = vec![0.0; speeds.len()];
    for way in &ways {
        for (hops, share) in way.hops.iter().zip(&way.shares) {
            hops.iter().for_each(|hop| loads[*hop] += share);
        }
    }
    let busiest = |loads: &[f64]| loads.iter().zip(&speeds).map(|(load, speed)| load / speed).fold(0.0, f64::max);
    let before = busiest(&loads);
    if before == 0.0 {
        return;
    }
    let mut moved: Vec<Way> = ways.iter().map(|way| (*way).clone()).collect();
    for _ in 0..ROUNDS {
        let most = moved.iter_mut().map(|way| shift(way, &mut loads, &speeds, before) / way.weight).fold(0.0, f64::max);
        if most < NOTHING {
            break;
        }
    }
    if busiest(&loads) < before * (1.0 - 1e-6) {
        ways.into_iter().zip(moved).for_each(|(way, moved)| *way = moved);
    }
}

/// Moves a part of a flow from the lane on which it costs most to the one on which it costs least; how much. `scale`: a load of about the
/// size of the largest, so that powers stay in range.
fn shift(way: &mut Way, loads: &mut [f64], speeds: &[f64], scale: f64) -> f64 {
    let cost = |loads: &[f64], hops: &[usize], more: f64| -> f64 {
        hops.iter().map(|h| ((loads[*h] + more) / speeds[*h] / scale).powi(POWER - 1) / speeds[*h]).sum()
    };
    let costs: Vec<f64> = way.hops.iter().map(|hops| cost(loads, hops, 0.0)).collect();
    let lanes = 0..costs.len();
    let dear = lanes.clone().filter(|n| way.shares[*n] > 0.0).max_by(|a, b| costs[*a].total_cmp(&costs[*b]));
    let cheap = lanes.min_by(|a, b| costs[*a].total_cmp(&costs[*b]));
    let (Some(dear), Some(cheap)) = (dear, cheap) else { return 0.0 };
    if dear == cheap {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, way.shares[dear]);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        // Lanes of one flow share no link.
        if cost(loads, &way.hops[dear], -middle) > cost(loads, &way.hops[cheap], middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    for (lane, part) in [(dear, -low), (cheap, low)] {
        way.shares[lane] += part;
        way.hops[lane].iter().for_each(|hop| loads[*hop] += part);
    }
    low
}
