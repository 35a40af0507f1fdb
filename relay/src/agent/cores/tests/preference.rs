use std::collections::BTreeSet;

use super::*;

/// Laid out like GB10: two clusters, each of five small cores and then five big ones; the second a little faster, the last core the most.
fn gb10() -> Vec<u64> {
    [[700; 5], [990; 5], [715; 5], [1010, 1010, 1010, 1010, 1024]].concat()
}

const BIG: [usize; 10] = [5, 6, 7, 8, 9, 15, 16, 17, 18, 19];

#[test]
fn a_big_core_is_chosen_and_agents_spread_over_all_of_them() {
    // given ten big and ten small cores that differ a little within their kind
    let tree = Tree::new(20);
    tree.each("cpu_capacity", &gb10());
    // when the agents of ten nodes choose
    let cores: BTreeSet<usize> = (0..10).map(|seed| tree.auto(seed).core.unwrap()).collect();
    // then each has a big core of its own
    assert_eq!(cores, BTreeSet::from(BIG));
    assert_eq!(tree.auto(0), chosen(Some(5), false, "core 5 (fastest of 20 allowed)"));
}

#[test]
fn any_seed_is_taken() {
    let tree = Tree::new(20);
    tree.each("cpu_capacity", &gb10());
    for seed in [0, 9, 10, u64::MAX] {
        assert_eq!(tree.auto(seed).core, Some(BIG[(seed % 10) as usize]));
    }
}

#[test]
fn frequencies_tell_where_the_kernel_knows_no_capacities() {
    // given a machine with frequencies alone, in kHz
    let tree = Tree::new(4);
    tree.each("cpufreq/cpuinfo_max_freq", &[2_800_000, 2_800_000, 3_900_000, 2_800_000]);
    // then they count
    assert_eq!(tree.auto(1).core, Some(2));
}

#[test]
fn capacities_of_some_cores_alone_are_not_compared_with_frequencies() {
    // given capacities of the first three of four cores, and a frequency of each
    let tree = Tree::new(4);
    tree.each("cpu_capacity", &[500, 500, 1024]);
    tree.each("cpufreq/cpuinfo_max_freq", &[2_000_000, 4_000_000, 2_000_000, 2_000_000]);
    // then frequencies count, for all
    assert_eq!(tree.auto(0).core, Some(1));
}

#[test]
fn cores_of_which_nothing_is_known_are_equal_but_for_the_first() {
    let tree = Tree::new(4);
    // when more agents choose than there are cores
    let cores: Vec<_> = (0..4).map(|seed| tree.auto(seed).core.unwrap()).collect();
    // then core 0, which gets most interrupts, is left alone
    assert_eq!(cores, [1, 2, 3, 1]);
    assert_eq!(tree.auto(0).why, "core 1 (one of 4 allowed)");
}

#[test]
fn the_first_core_is_taken_where_it_alone_is_big() {
    let tree = Tree::new(4);
    tree.each("cpu_capacity", &[1024, 400, 400, 400]);
    assert_eq!(tree.auto(0).core, Some(0));
}

#[test]
fn an_eighth_makes_another_kind() {
    // just below an eighth slower, and just above
    assert_eq!(order::kinds(&[800, 700, 699]), [0, 0, 1]);
    // each kind is measured from its own top
    assert_eq!(order::kinds(&[100, 1000, 640, 600, 0]), [2, 0, 1, 1, 3]);
    assert_eq!(order::kinds(&[0, 0]), [0, 0]);
    assert_eq!(order::kinds(&[u64::MAX, u64::MAX]), [0, 0]);
    assert!(order::kinds(&[]).is_empty());
}

#[test]
fn cores_that_other_threads_are_bound_to_are_left_out() {
    // given twelve equal cores, one thread bound to core 1 and one to core 3
    let tree = Tree::new(12);
    tree.thread(80, "1").thread(81, "3");
    // then neither is chosen, whatever the seed
    let cores: BTreeSet<usize> = (0..100).map(|seed| tree.auto(seed).core.unwrap()).collect();
    assert_eq!(cores, BTreeSet::from([2, 4, 5, 6, 7, 8, 9, 10, 11]));
    assert_eq!(tree.auto(2), chosen(Some(5), false, "core 5 (one of 12 allowed; 2 busy left out)"));
}

#[test]
fn a_small_core_is_better_than_a_busy_big_one() {
    // given threads that are bound to all big cores, five by five
    let tree = Tree::new(20);
    tree.each("cpu_capacity", &gb10()).thread(80, "5-9").thread(81, "15-19");
    // then the relay thread gets a small one, and does not claim that it is fast
    assert_eq!(tree.auto(0), chosen(Some(1), false, "core 1 (one of 20 allowed; 10 busy left out)"));
}

#[test]
fn bound_means_one_core_or_at_most_a_quarter_of_those_allowed() {
    // given a process that may use cores 0 to 7
    for (list, busy) in [
        ("2", 1),   // one core
        ("2-3", 2), // a quarter
        ("2-4", 0), // more than a quarter
        ("0-7", 0), // all
        ("7-8", 0), // not out of those allowed
        ("0-127", 0),
    ] {
        let tree = Tree::new(8);
        // when another thread has these cores
        tree.thread(80, list);
        // then so many are busy
        assert_eq!(tree.machine().cores.iter().filter(|core| core.busy).count(), busy, "{list}");
    }
}

#[test]
fn one_of_three_cores_is_bound_though_it_is_more_than_a_quarter() {
    let tree = Tree::new(3);
    tree.thread(80, "1");
    assert_eq!(tree.auto(0).core, Some(2));
    // when the other is bound too, then the first is what is left
    tree.thread(81, "2");
    assert_eq!(tree.auto(0), chosen(Some(0), false, "core 0 (one of 3 allowed; 2 busy left out)"));
}

#[test]
fn neither_the_calling_thread_nor_one_that_has_ended_makes_a_core_busy() {
    // given the calling thread, which NCCL has narrowed, and a thread that nobody has waited for
    let tree = Tree::new(4);
    tree.thread(ME, "1").file("proc/self/task/80/status", "State:\tZ (zombie)\nCpus_allowed_list:\t2\n");
    // and one that ended between being listed and being read
    std::fs::create_dir_all(tree.0.join("proc/self/task/81")).unwrap();
    // then no core is busy, and nothing was wrong
    let machine = tree.machine();
    assert!(machine.cores.iter().all(|core| !core.busy));
    assert_eq!(machine.remarks(), None);
}

#[test]
fn a_core_beside_a_busy_hyper_thread_comes_after_those_beside_none() {
    // given four physical cores with two hyper-threads each, and a thread bound to core 5, which shares one with core 1
    let tree = Tree::new(8);
    tree.hyper_threads(4).thread(80, "5");
    // then core 1 is chosen for no seed
    let cores: BTreeSet<usize> = (0..8).map(|seed| tree.auto(seed).core.unwrap()).collect();
    assert_eq!(cores, BTreeSet::from([2, 3, 4, 6, 7]));
}

#[test]
fn where_every_free_core_is_beside_a_busy_one_the_log_says_so() {
    // given threads bound to one hyper-thread of each physical core
    let tree = Tree::new(8);
    tree.hyper_threads(4);
    (4..8).for_each(|core| {
        tree.thread(80 + core, &core.to_string());
    });
    // then one of the others is taken, spinning, since nobody else is bound to it
    let why = "core 1 (one of 8 allowed; 4 busy left out; its hyper-thread sibling is busy)";
    assert_eq!(tree.auto(0), chosen(Some(1), false, why));
}

#[test]
fn a_machine_that_is_busy_all_over_is_shared() {
    // given threads bound to each of four cores, two of them big
    let tree = Tree::new(4);
    tree.each("cpu_capacity", &[1024, 1024, 400, 400]);
    (0..4).for_each(|core| {
        tree.thread(80 + core, &core.to_string());
    });
    // then the preference among them is as ever, and the relay thread yields to the one that is bound there
    let why = "core 1, yielding (fastest of 4 allowed; another thread is bound to it)";
    assert_eq!(tree.auto(0), chosen(Some(1), true, why));
}

#[test]
fn a_core_that_cannot_be_had_is_followed_by_the_next_best() {
    // given two big cores and four small ones, one of which is busy
    let tree = Tree::new(6);
    tree.each("cpu_capacity", &[400, 1024, 1024, 400, 400, 400]).thread(80, "3");
    let machine = tree.machine();
    // when none can be had
    let mut tried = Vec::new();
    let outcome = decide(&CoreChoice::Auto, 0, &machine, |core| {
        tried.push(core);
        false
    });
    // then all have been tried, best first, and the thread stays free
    assert_eq!(tried, [1, 2, 4, 5, 0, 3]);
    assert_eq!(outcome, chosen(None, false, "any core (the system lets it be pinned to none of 6)"));
    // when all but the big ones can be had, then a free small one is
    assert_eq!(decide(&CoreChoice::Auto, 0, &machine, |core| core > 2).core, Some(4));
}
