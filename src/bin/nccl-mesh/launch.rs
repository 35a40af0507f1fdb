//! An order of ranks as launchers take it: lines to copy, for each node or for all. Knows nothing of how the order came
//! about. Runs on the command's main thread.

use clap::ValueEnum;
use mesh_routing::{RankOrder, Topology};
use std::fmt::Write as _;

/// Port of the meeting point of torchrun and vLLM, their own default.
const PORT: u16 = 29_500;

/// For whom an order is printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// A torchrun command line for each node
    Torchrun,
    /// A rankfile for `mpirun --rankfile FILE`
    Mpirun,
    /// A `vllm serve` command line for each node
    Vllm,
    /// Names of nodes, a line each, rank 0 first
    Plain,
    /// One JSON object a line
    Json,
}

/// A rankfile of Open MPI, one rank a node.
pub(crate) fn rankfile(topology: &Topology, order: &RankOrder) -> String {
    let line = |(rank, &node)| format!("rank {rank}={} slot=0\n", topology.name(node));
    order.nodes().iter().enumerate().map(line).collect()
}

/// Names, a line each.
pub(crate) fn plain(topology: &Topology, order: &RankOrder) -> String {
    order.nodes().iter().map(|&node| format!("{}\n", topology.name(node))).collect()
}

/// For each node the line to start there; capitals stand for what only the user knows.
pub(crate) fn torchrun(topology: &Topology, order: &RankOrder) -> String {
    lines(topology, order, |nodes, rank, head| {
        format!(
            "torchrun --nnodes {nodes} --node-rank {rank} --nproc-per-node 1 --master-addr {head} --master-port {PORT} SCRIPT"
        )
    })
}

/// As [`torchrun`]; tensor parallel over all nodes. The first node serves, the others are headless.
pub(crate) fn vllm(topology: &Topology, order: &RankOrder) -> String {
    lines(topology, order, |nodes, rank, head| {
        let headless = if rank == 0 { "" } else { " --headless" };
        format!(
            "vllm serve MODEL --tensor-parallel-size {nodes} --nnodes {nodes} --node-rank {rank} --master-addr {head} --master-port {PORT}{headless}"
        )
    })
}

/// A comment that names the node, and its line. The head is named by its management address, if it has one.
fn lines(topology: &Topology, order: &RankOrder, line: impl Fn(usize, usize, &str) -> String) -> String {
    let mut text = String::new();
    let Some(&first) = order.nodes().first() else { return text };
    let first = topology.node(first);
    let head = first.control.map_or_else(|| first.name.clone(), |address| address.to_string());
    for (rank, &node) in order.nodes().iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# on {}\n{}", topology.name(node), line(order.nodes().len(), rank, &head));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{plain, torchrun, vllm};
    use mesh_routing::{AddressPlan, RankOrder, Shape, Topology};

    fn ring() -> (Topology, RankOrder) {
        let ring = Topology::from_shape(Shape::Ring, 3, 1, &AddressPlan::default()).expect("a ring");
        let text = ring.to_toml().replace("name = \"node2\"", "name = \"node2\"\ncontrol = \"10.0.0.12\"");
        let topology = Topology::from_toml(&text).expect("a sound file");
        let order = RankOrder::parse(&topology, "2,0,1").expect("an order");
        (topology, order)
    }

    #[test]
    fn each_node_has_its_line() {
        let (topology, order) = ring();
        assert_eq!(plain(&topology, &order), "node2\nnode0\nnode1\n");
        // given a head with a management address, then that is where all meet
        assert_eq!(
            torchrun(&topology, &order),
            "# on node2\n\
             torchrun --nnodes 3 --node-rank 0 --nproc-per-node 1 --master-addr 10.0.0.12 --master-port 29500 SCRIPT\n\
             # on node0\n\
             torchrun --nnodes 3 --node-rank 1 --nproc-per-node 1 --master-addr 10.0.0.12 --master-port 29500 SCRIPT\n\
             # on node1\n\
             torchrun --nnodes 3 --node-rank 2 --nproc-per-node 1 --master-addr 10.0.0.12 --master-port 29500 SCRIPT\n"
        );
        // and without one, its name
        let other = RankOrder::parse(&topology, "0,1,2").expect("an order");
        assert!(torchrun(&topology, &other).contains("--master-addr node0 "));
    }

    #[test]
    fn only_the_first_node_of_vllm_serves() {
        let (topology, order) = ring();
        let text = vllm(&topology, &order);
        let headless: Vec<_> =
            text.lines().filter(|line| !line.starts_with('#')).map(|line| line.ends_with("--headless")).collect();
        assert_eq!(headless, [false, true, true]);
        assert!(text.contains("--nnodes 3 --node-rank 2 --master-addr 10.0.0.12"), "{text}");
    }
}
