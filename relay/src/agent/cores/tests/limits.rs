use super::*;

const UNIFIED: &str = "29 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const LEGACY: &str = "31 1 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                      32 1 0:29 / /sys/fs/cgroup/cpuset rw shared:10 - cgroup cgroup rw,cpuset\n";

#[test]
fn up_to_two_cores_are_left_to_the_scheduler_and_three_are_not() {
    for (cores, expected) in [
        (1, chosen(None, true, "any core, yielding (1 core may be used)")),
        (2, chosen(None, true, "any core, yielding (2 cores may be used)")),
        (3, chosen(Some(1), false, "core 1 (one of 3 allowed)")),
    ] {
        assert_eq!(Tree::new(cores).auto(0), expected);
    }
}

#[test]
fn a_cpuset_bounds_the_choice() {
    // given a container with four of twenty cores, three of them big
    let tree = Tree::new(20);
    tree.allowed("3,5-7").each("cpu_capacity", &[[700; 5], [1024; 5], [700; 5], [1024; 5]].concat());
    // then one of those three is chosen
    let cores: Vec<_> = (0..3).map(|seed| tree.auto(seed).core.unwrap()).collect();
    assert_eq!(cores, [5, 6, 7]);
    assert_eq!(tree.auto(0).why, "core 5 (fastest of 4 allowed)");
    // when it has two, then the size of the machine is no help
    assert_eq!(tree.allowed("5-6").auto(0), chosen(None, true, "any core, yielding (2 cores may be used)"));
}

#[test]
fn cores_that_are_offline_do_not_count() {
    // given a virtual machine that could have 128 cores and has two
    let tree = Tree::new(2);
    tree.allowed("0-127");
    assert_eq!(tree.auto(0).core, None);
    // when it gets two more, then those count
    tree.file("sys/devices/system/cpu/online", "0-1,6-7\n");
    assert_eq!(tree.auto(1), chosen(Some(6), false, "core 6 (one of 4 allowed)"));
}

#[test]
fn a_quota_of_version_2_is_rounded_up_to_whole_cores() {
    for (max, quota) in [
        ("max 100000\n", None),
        ("100000 100000\n", Some(1)),
        ("100001 100000\n", Some(2)),
        ("250000 100000\n", Some(3)),
        ("1000 1000000\n", Some(1)),
    ] {
        let tree = Tree::new(20);
        // given a group with that limit
        tree.groups("0::/job\n", UNIFIED).file("sys/fs/cgroup/job/cpu.max", max);
        // then it is worth so many cores
        let machine = tree.machine();
        assert_eq!((machine.quota, machine.remarks()), (quota, None), "{max}");
        assert_eq!(machine.effective(), quota.unwrap_or(20));
    }
}

#[test]
fn a_quota_of_up_to_two_cores_keeps_the_thread_from_spinning_on_one() {
    // given twenty cores and time for one and a half
    let tree = Tree::new(20);
    tree.groups("0::/job\n", UNIFIED).file("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
    let why = "any core, yielding (20 cores may be used, with a quota of 2)";
    assert_eq!(tree.auto(0), chosen(None, true, why));
    // when it is time for two and a half, then a core is chosen among all
    tree.file("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
    assert_eq!(tree.auto(18), chosen(Some(19), false, "core 19 (one of 20 allowed; quota of 3)"));
}

#[test]
fn a_quota_above_the_cores_allowed_changes_nothing() {
    let tree = Tree::new(4);
    tree.groups("0::/job\n", UNIFIED).file("sys/fs/cgroup/job/cpu.max", "800000 100000\n");
    assert_eq!(tree.auto(0).why, "core 1 (one of 4 allowed)");
}

#[test]
fn every_group_above_counts_and_the_least_holds() {
    // given a pod of two cores around a container without a limit of its own, in a slice of eight
    let tree = Tree::new(20);
    tree.groups("0::/pods/pod7/main\n", UNIFIED)
        .file("sys/fs/cgroup/pods/pod7/main/cpu.max", "max 100000\n")
        .file("sys/fs/cgroup/pods/pod7/cpu.max", "200000 100000\n")
        .file("sys/fs/cgroup/pods/cpu.max", "800000 100000\n")
        // and, beside it, a pod that is none of its business
        .file("sys/fs/cgroup/pods/pod8/cpu.max", "100000 100000\n");
    assert_eq!(tree.machine().quota, Some(2));
    // when the slice is bounded more tightly than the pod, then that holds
    tree.file("sys/fs/cgroup/pods/cpu.max", "100000 100000\n");
    assert_eq!(tree.machine().quota, Some(1));
}

#[test]
fn a_container_sees_its_own_group_as_the_top() {
    // given a private view: the path is the root, and the limit lies at the mount itself
    let tree = Tree::new(20);
    tree.groups("0::/\n", UNIFIED).file("sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_eq!(tree.machine().quota, Some(3));
    // when the process was moved out of that view, then the mount is all that can be looked at
    tree.groups("0::/../other\n", UNIFIED);
    assert_eq!(tree.machine().quota, Some(3));
}

#[test]
fn a_quota_of_version_1_counts_with_all_groups_above() {
    let tree = Tree::new(20);
    let folder = "sys/fs/cgroup/cpu,cpuacct/docker";
    // given a container without a quota below a group with two and a half
    tree.groups("5:cpuset:/docker/c1\n4:cpu,cpuacct:/docker/c1\n0::/docker/c1\n", LEGACY)
        .file(&format!("{folder}/c1/cpu.cfs_quota_us"), "-1\n")
        .file(&format!("{folder}/c1/cpu.cfs_period_us"), "100000\n")
        .file(&format!("{folder}/cpu.cfs_quota_us"), "125000\n")
        .file(&format!("{folder}/cpu.cfs_period_us"), "50000\n");
    let machine = tree.machine();
    assert_eq!((machine.quota, machine.remarks()), (Some(3), None));
    // when the container has less, then that holds
    tree.file(&format!("{folder}/c1/cpu.cfs_quota_us"), "50000\n");
    assert_eq!(tree.machine().quota, Some(1));
}

#[test]
fn a_mount_that_shows_only_the_containers_part_is_understood() {
    // given a mount whose root is the container's group, while the path is told from the machine's root
    let tree = Tree::new(20);
    let mount = "31 1 0:28 /docker/c1 /sys/fs/cgroup/cpu ro shared:9 - cgroup cgroup rw,cpu\n";
    tree.groups("4:cpu:/docker/c1/worker\n", mount)
        .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n")
        .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
        .file("sys/fs/cgroup/cpu/worker/cpu.cfs_quota_us", "200000\n")
        .file("sys/fs/cgroup/cpu/worker/cpu.cfs_period_us", "100000\n");
    assert_eq!(tree.machine().quota, Some(2));
    // a group whose name only begins like the mount's is another one
    tree.groups("4:cpu:/docker/c12/worker\n", mount);
    assert_eq!(tree.machine().quota, Some(4));
}

#[test]
fn both_versions_on_one_machine_count() {
    // given version 1 for time and version 2 beside it, as systemd mounts them
    let tree = Tree::new(20);
    let unified = "42 1 0:38 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n";
    tree.groups("4:cpu,cpuacct:/a\n0::/a\n", &format!("{unified}{LEGACY}"))
        .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "500000\n")
        .file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_eq!(tree.machine().quota, Some(5));
    tree.file("sys/fs/cgroup/unified/a/cpu.max", "300000 100000\n");
    assert_eq!(tree.machine().quota, Some(3));
}
