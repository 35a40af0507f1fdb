//! Runs with programs in the place of nodes: what is reported when they fail, and that nothing of them stays.
//!
//! Files in the place of the libraries: the loader says that it does not preload them and goes on, which is all that these programs
//! need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mesh_routing::{AddressPlan, Shape, Topology};

use super::*;

/// Some file that is there and is no library.
fn any_file() -> PathBuf {
    PathBuf::from("/etc/passwd")
}

pub(super) fn args(work: Work) -> RunArgs {
    RunArgs {
        topology: Topology::from_shape(Shape::Ring, 3, 1, &AddressPlan::default()).expect("a ring"),
        real_ports: false,
        netns: false,
        link: LinkKind::Tcp,
        work,
        rank_order: Vec::new(),
        faults: Vec::new(),
        plugin: Some(any_file()),
        fabric: Some(any_file()),
        soft_verbs: None,
        soft_verbs_set: Vec::new(),
        discover: false,
        agents: Agents::None,
        jobs: 1,
        endings: Vec::new(),
        node_program: Vec::new(),
        environment: Vec::new(),
        timeout: Duration::from_secs(60),
        json: false,
    }
}

fn collective(script: &str) -> RunArgs {
    let asked = CollectiveArgs {
        collective: Collective::AllReduce,
        algo: Algo::Ring,
        sizes: vec![4],
        iterations: None,
        channels: 1,
        distance: None,
        repeat: 1,
        idle: None,
        abi: 12,
    };
    let node_program = ["sh", "-c", script].map(OsString::from).to_vec();
    RunArgs { node_program, ..args(Work::Collective(asked)) }
}

pub(super) fn job(script: &str) -> RunArgs {
    let command = ["sh", "-c", script].map(OsString::from).to_vec();
    args(Work::Job(JobArgs { command, prefix: true, plugin: true }))
}

/// A file that scripts append to.
pub(super) struct Journal(PathBuf);

impl Journal {
    pub(super) fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("nccl-mesh-journal-{name}-{}", std::process::id())))
    }

    pub(super) fn path(&self) -> &str {
        self.0.to_str().expect("plain")
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).expect("written");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_node_that_dies_is_named_with_its_status() {
    // given nodes of which one ends at once and the others wait
    let script = "if [ \"$NCCL_MESH_NODE\" = node1 ]; then exit 3; else sleep 600; fi";
    // when they run
    let report = run(&collective(script), &mut Vec::new()).expect("begins");
    // then the one that ended is the cause, and the run has failed
    assert_eq!(report.problems(), ["node1: process ended while starting: exit status 3"]);
    assert_eq!(report.status(), 1);
}

#[test]
fn nodes_that_say_nothing_run_into_the_limit() {
    let mut args = collective("sleep 600");
    args.timeout = Duration::from_millis(700);
    args.faults = vec!["0 absent node2".parse().expect("known")];
    let report = run(&args, &mut Vec::new()).expect("begins");
    let expected = [
        "node0: still starting when the run's 1 s were over",
        "node1: still starting when the run's 1 s were over",
        "node2: absent from the start as asked (rank 2)",
    ];
    assert_eq!(report.problems(), expected);
}

#[test]
fn a_node_that_talks_nonsense_is_ended() {
    // given nodes that write what is no message to their parent
    let report = run(&collective("echo nonsense >&0; sleep 600"), &mut Vec::new()).expect("begins");
    // then the first that is heard is the cause, and its process did not have to end by itself
    assert!(report.problems()[0].contains("its connection to the parent ended"), "{:?}", report.problems());
}

#[test]
fn a_node_is_told_of_its_fabric() {
    // given nodes that write down what they are told
    let journal = Journal::new("fabric");
    let script = format!(
        "test -s \"$MESH_FABRIC\" && test -s \"$NCCL_MESH_TOPOLOGY\" && grep -q 'name' \"$NCCL_MESH_TOPOLOGY\" && \
         echo \"$NCCL_MESH_NODE $MESH_FABRIC_NODE $EXTRA $MESH_FABRIC\" >> {}; exit 1",
        journal.path()
    );
    let mut args = collective(&script);
    args.environment = vec![("EXTRA".to_owned(), "more".to_owned())];
    args.rank_order = ["node2", "0", "1"].map(str::to_owned).to_vec();
    run(&args, &mut Vec::new()).expect("begins");
    // then at least the first to fail wrote a line with its own ports, and the files are gone now
    let lines = journal.lines();
    assert!(!lines.is_empty());
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[0].starts_with("node") && words[1].matches("10.200.0.").count() == 2, "{line}");
        assert!(words[2] == "more" && !Path::new(words[3]).exists(), "{line}");
    }
}

#[test]
fn a_job_has_what_launchers_set_and_the_worst_status() {
    let journal = Journal::new("job");
    let script = format!(
        "echo $RANK $WORLD_SIZE $LOCAL_RANK $NCCL_HOSTID $NCCL_NET $NCCL_SOCKET_IFNAME $MASTER_ADDR >> {}; \
         echo '{{\"direct_bytes\": 5, \"relayed_out_bytes\": 6, \"forwarded_bytes\": 7}}' > $NCCL_MESH_STATS_FILE; \
         test $RANK != 0 || exit 9",
        journal.path()
    );
    let mut args = job(&script);
    args.rank_order = ["node2", "node0", "node1"].map(str::to_owned).to_vec();
    let mut out = Vec::new();
    let report = run(&args, &mut out).expect("begins");
    // then rank 0 ran on node2 and its status is the worst
    let expected = ["0 3 0 node2 Mesh lo 127.0.0.1", "1 3 0 node0 Mesh lo 127.0.0.1", "2 3 0 node1 Mesh lo 127.0.0.1"];
    assert_eq!(journal.lines(), expected);
    assert_eq!((report.problems(), report.status()), (&["node2: exit status 9".to_owned()][..], 9));
    // and the table has the counters that the nodes left
    let table = String::from_utf8(out).expect("text");
    assert!(
        table
            .lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>() == ["node0", "1", "5", "B", "6", "B", "7", "B"]),
        "{table}"
    );
}

#[test]
fn when_one_of_a_job_fails_the_others_are_ended() {
    let started = Instant::now();
    let report = run(&job("test $RANK = 1 && exit 4; sleep 600"), &mut Vec::new()).expect("begins");
    assert_eq!(report.problems(), ["node1: exit status 4", "2 other nodes were ended after that"]);
    assert_eq!(report.status(), 4);
    assert!(started.elapsed() >= Duration::from_secs(1), "the others had their grace");
}

#[test]
fn a_job_without_the_plugin_is_told_nothing_of_it() {
    let mut args = job("test -z \"$NCCL_NET_PLUGIN$NCCL_NET\"");
    if let Work::Job(job) = &mut args.work {
        job.plugin = false;
    }
    let mut out = Vec::new();
    let report = run(&args, &mut out).expect("begins");
    assert_eq!((report.problems(), report.status(), out), (&[][..], 0, Vec::new()));
}

#[test]
fn a_command_that_is_not_there_is_a_failure() {
    let command = vec![OsString::from("/no/such/program")];
    let report =
        run(&args(Work::Job(JobArgs { command, prefix: true, plugin: true })), &mut Vec::new()).expect("begins");
    assert_eq!(report.status(), 127);
    assert!(report.problems()[0].starts_with("/no/such/program does not start"), "{:?}", report.problems());
}

#[test]
fn what_does_not_fit_the_topology_is_refused_before_anything_starts() {
    let mut unknown_rank = job("true");
    unknown_rank.rank_order = vec!["0".to_owned(), "node9".to_owned()];
    let mut unknown_fault = collective("true");
    unknown_fault.faults = vec!["0 absent node9".parse().expect("known")];
    let mut no_plugin = job("true");
    no_plugin.plugin = Some(PathBuf::from("/no/such/plugin.so"));
    for (args, word) in [(unknown_rank, "node9"), (unknown_fault, "node9"), (no_plugin, "/no/such/plugin.so")] {
        let error = run(&args, &mut Vec::new()).expect_err("refused");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_real_port_that_this_machine_does_not_have_is_named_before_any_node_starts() {
    // given a topology with addresses that are reserved for documents, and so nobody's
    let plan = AddressPlan { base: std::net::Ipv4Addr::new(192, 0, 2, 0) };
    let topology = Topology::from_shape(Shape::Ring, 3, 1, &plan).expect("a ring");
    let args = RunArgs { topology, real_ports: true, ..collective("exit 1") };
    // when it is run, then it does not begin
    let error = run(&args, &mut Vec::new()).expect_err("no such port").to_string();
    assert!(error.contains("node0 has the port 192.0.2.1, which is no address of this machine"), "{error}");
}
