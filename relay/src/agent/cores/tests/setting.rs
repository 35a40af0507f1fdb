use super::*;

fn list(cores: &[usize]) -> CoreChoice {
    CoreChoice::List(cores.to_vec())
}

#[test]
fn lists_are_read_and_nonsense_is_left_out() {
    assert_eq!(parse_list("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
    assert_eq!(parse_list(" 5 "), [5]);
    assert!(parse_list("x,-").is_empty());
    assert!(parse_list("9-3").is_empty());
    // then even a list without end has one
    assert_eq!(parse_list("7-99999999").len(), 4096);
    assert_eq!(parse_list(&format!("{}-{}", usize::MAX, usize::MAX)), [usize::MAX]);
}

#[test]
fn the_first_core_of_the_users_list_that_can_be_had_wins_over_all_preferences() {
    // given a machine whose core 2 is small, while core 40 does not exist
    let tree = Tree::new(8);
    tree.each("cpu_capacity", &[1024, 1024, 400, 1024, 1024, 1024, 1024, 1024]);
    // when the user names both
    let outcome = decide(&list(&[40, 2, 3]), 5, &tree.machine(), |core| core < 8);
    // then the small one is taken, whatever the seed
    assert_eq!(outcome, chosen(Some(2), false, "core 2 (set by NCCL_MESH_RELAY_CORES)"));
}

#[test]
fn a_list_of_which_nothing_can_be_had_is_said_and_nothing_else_is_pinned() {
    let tree = Tree::new(8);
    // given two cores that are offline
    let mut tried = Vec::new();
    let outcome = decide(&list(&[40, 41]), 0, &tree.machine(), |core| {
        tried.push(core);
        false
    });
    // then both were tried, and no other
    assert_eq!(tried, [40, 41]);
    assert_eq!(
        outcome,
        chosen(None, false, "any core (NCCL_MESH_RELAY_CORES names no core that can be had: [40, 41])")
    );
}

#[test]
fn the_users_core_is_kept_where_cores_are_few_or_busy_and_the_thread_yields() {
    // given two cores
    let why = "core 1, yielding (set by NCCL_MESH_RELAY_CORES; 2 cores may be used)";
    assert_eq!(decide(&list(&[1]), 0, &Tree::new(2).machine(), |_| true), chosen(Some(1), true, why));
    // given many, and a thread that is bound to the one that the user names
    let tree = Tree::new(8);
    tree.thread(80, "1");
    let why = "core 1, yielding (set by NCCL_MESH_RELAY_CORES; another thread is bound to it)";
    assert_eq!(decide(&list(&[1]), 0, &tree.machine(), |_| true), chosen(Some(1), true, why));
}

#[test]
fn none_pins_nothing_and_yields_only_where_cores_are_few() {
    for (cores, yields, why) in [
        (8, false, "any core (NCCL_MESH_RELAY_CORES is none)"),
        (2, true, "any core, yielding (NCCL_MESH_RELAY_CORES is none; 2 cores may be used)"),
    ] {
        let outcome = decide(&CoreChoice::None, 0, &Tree::new(cores).machine(), |_| panic!("nothing is pinned"));
        assert_eq!(outcome, chosen(None, yields, why));
    }
}

#[test]
fn a_kernel_that_says_nothing_gets_no_pinning_and_is_reported() {
    // given nothing at all
    let tree = Tree::new(1);
    std::fs::remove_dir_all(&tree.0).unwrap();
    // then the thread stays free and gives way, as nobody knows to how many
    let why = "any core, yielding (which cores may be used is not known; /proc/self/status names no core)";
    assert_eq!(tree.auto(0), chosen(None, true, why));
}

#[test]
fn files_that_make_no_sense_are_reported_and_not_used() {
    let cases = [
        ("sys/devices/system/cpu/cpu1/cpu_capacity", "fast\n", "says \"fast\", not used"),
        ("sys/devices/system/cpu/cpu1/cpu_capacity", "", "says \"\", not used"),
        ("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "?", "says \"?\", not used"),
        ("sys/devices/system/cpu/online", "none of them, if you ask me", "says \"none of them, if you ask\", not used"),
        ("proc/self/task/80/status", "State:\tR\nCpus_allowed_list:\t\n", "says \"\", not used"),
        ("sys/fs/cgroup/cpu.max", "", "says \"\", not used"),
        ("sys/fs/cgroup/cpu.max", "100000", "says \"100000\", not used"),
        ("sys/fs/cgroup/cpu.max", "0 100000", "says \"0 100000\", not used"),
        ("sys/fs/cgroup/cpu.max", "100000 0", "says \"100000 0\", not used"),
        ("sys/fs/cgroup/cpu.max", "-5 100000", "says \"-5 100000\", not used"),
        ("sys/fs/cgroup/v1/cpu.cfs_quota_us", "-2\n", "says \"-2 of no period\", not used"),
        ("sys/fs/cgroup/v1/cpu.cfs_quota_us", "a lot\n", "says \"a lot of no period\", not used"),
    ];
    for (path, text, said) in cases {
        // given four equal cores, and one file that makes no sense
        let tree = Tree::new(4);
        tree.each("cpu_capacity", &[1024; 4])
            .groups(
                "1:cpu:/\n0::/\n",
                "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n2 1 0:2 / /sys/fs/cgroup/v1 rw - cgroup none rw,cpu\n",
            )
            .file(path, text);
        // then the choice is as without it, and the log names file and text
        let why = format!("core 1 (one of 4 allowed; /{path} {said})");
        assert_eq!(tree.auto(0), chosen(Some(1), false, &why));
    }
}

#[test]
fn of_many_files_that_make_no_sense_one_is_named() {
    // given capacities that are no numbers, siblings that are no lists, and a file that is a folder
    let tree = Tree::new(4);
    for core in 0..4 {
        tree.file(&format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"), "self");
    }
    std::fs::create_dir_all(tree.0.join("sys/devices/system/cpu/cpu0/cpu_capacity")).unwrap();
    let why = tree.auto(0).why;
    assert!(why.contains("/sys/devices/system/cpu/cpu0/cpu_capacity cannot be read: "), "{why}");
    assert!(why.ends_with("; 4 more like that)"), "{why}");
}

#[test]
fn groups_that_make_no_sense_are_no_limit() {
    for (groups, mounts) in [
        ("", ""),
        ("0::/a\n", ""),
        ("nonsense\n0:\n::\n", "nonsense\n - \n - cgroup2\na b c - cgroup2 x y\n1 2 3 / /m - cgroup\n"),
        ("0::no/slash\n", "1 1 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n"),
    ] {
        let tree = Tree::new(4);
        tree.groups(groups, mounts);
        assert_eq!(tree.machine().quota, None, "{groups:?} {mounts:?}");
    }
}

#[test]
fn the_machine_at_hand_is_read_and_what_is_chosen_on_it_holds() {
    // given a thread of its own on whatever machine this is
    let (outcome, status) = std::thread::spawn(|| {
        let outcome = choose(&CoreChoice::Auto, 1);
        (outcome, std::fs::read_to_string("/proc/thread-self/status").unwrap())
    })
    .join()
    .unwrap();
    // then the kernel agrees with the answer
    if let Some(core) = outcome.core {
        assert_eq!(files::field(&status, "Cpus_allowed_list"), Some(&*core.to_string()), "{}", outcome.why);
    }
    assert!(!Machine::read(Path::new("/")).cores.is_empty(), "{}", outcome.why);
    // and a core that no mask can name is refused, not a panic
    let outcome = std::thread::spawn(|| choose(&list(&[MASK, usize::MAX]), 1)).join().unwrap();
    assert_eq!(outcome.core, None);
    assert!(outcome.why.contains("NCCL_MESH_RELAY_CORES names no core that can be had: [1024, "), "{}", outcome.why);
}
