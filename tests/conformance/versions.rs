//! Every version of the table does the same.

use mesh_abi::{NEWEST_VERSION, OLDEST_VERSION};

use crate::pump::{Plan, ReceivePump, SendPump, mixed, run};
use crate::scenario::{LINE, scenario};

scenario! {
    every_version_of_the_table_moves_messages on LINE, |node| {
        for version in OLDEST_VERSION..=NEWEST_VERSION {
            // given the table of this version, used as NCCL's adapters do
            let node = node.other(version);
            assert_eq!((node.plugin.version(), node.plugin.name().as_str()), (version, "Mesh"));
            let plan = Plan { seed: version.into(), count: 30, slot: 200_000, depth: 8, size: mixed };
            // when messages go over every number of relays, then they arrive
            for peer in 1..node.world {
                let name = format!("v{version}-{peer}");
                if node.rank == 0 {
                    let comm = node.sender(&name);
                    run(&node, vec![SendPump::new(&node, comm, plan)], vec![]);
                    node.close_sender(comm);
                } else if node.rank == peer {
                    let comm = node.receiver(&name);
                    run(&node, vec![], vec![ReceivePump::new(&node, comm, plan)]);
                    node.close_receiver(comm);
                }
            }
            node.plugin.finalize(node.ctx).expect("finalize");
        }
    }
}
