//! One node of a scenario: the plugin, a communicator's context, the way to the other nodes, and the calls of NCCL's threads.
//!
//! Calls that may answer "not yet" are repeated, as NCCL does; what never comes ends at the scenario's watchdog.

use std::sync::Arc;
use std::time::Duration;

use mesh_abi::caller::{CallError, Comm, Ctx, ListenComm, MHandle, Plugin, RecvComm, Request, SendComm};
use mesh_abi::logger::to_stderr;
use mesh_abi::{HANDLE_BYTES, PTR_HOST};

use crate::hub::Hub;
use crate::memory::Area;

/// A handle as it travels.
pub(crate) type Handle = [u8; HANDLE_BYTES];

/// See the module.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) rank: usize,
    pub(crate) world: usize,
    pub(crate) plugin: Plugin,
    pub(crate) ctx: Ctx,
    pub(crate) hub: Arc<Hub>,
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by `nccl-mesh sim run`"))
}

impl Node {
    /// Joins the other nodes and opens the plugin's table of `version`.
    pub(crate) fn enter(version: u32) -> Self {
        let number = |name| variable(name).parse::<usize>().expect("a number");
        let (rank, world) = (number("RANK"), number("WORLD_SIZE"));
        let hub = Arc::new(Hub::join(rank, world, number("MASTER_PORT") as u16));
        Self::with(version, rank, world, hub)
    }

    /// The same node with another version of the table, and a communicator of that.
    pub(crate) fn other(&self, version: u32) -> Self {
        Self::with(version, self.rank, self.world, Arc::clone(&self.hub))
    }

    fn with(version: u32, rank: usize, world: usize, hub: Arc<Hub>) -> Self {
        // As the harness names it.
        let plugin = Plugin::open(variable("NCCL_NET_PLUGIN"), version).expect("the plugin opens");
        let ctx = plugin.init(u64::from(version), -1, Some(to_stderr())).expect("init");
        assert_eq!(plugin.devices(), Ok(1));
        Self { rank, world, plugin, ctx, hub }
    }

    /// Listens and tells the others the handle by `name`.
    pub(crate) fn listen(&self, name: &str) -> ListenComm {
        let mut handle = [0; HANDLE_BYTES];
        let listen = self.plugin.listen(self.ctx, 0, &mut handle).expect("listen");
        self.hub.put(name, &handle);
        listen
    }

    /// The handle that somebody listens with by `name`.
    pub(crate) fn handle(&self, name: &str) -> Handle {
        self.hub.get(name).try_into().expect("a handle")
    }

    /// Connects to a handle.
    pub(crate) fn connect(&self, handle: &mut Handle) -> SendComm {
        until(|| self.plugin.connect(self.ctx, 0, handle).expect("connect"))
    }

    /// Accepts from a listener.
    pub(crate) fn accept(&self, listen: &ListenComm) -> RecvComm {
        until(|| self.plugin.accept(listen).expect("accept"))
    }

    /// The sending end of the connection called `name`.
    pub(crate) fn sender(&self, name: &str) -> SendComm {
        self.connect(&mut self.handle(name))
    }

    /// The receiving end of the connection called `name`.
    pub(crate) fn receiver(&self, name: &str) -> RecvComm {
        let listen = self.listen(name);
        let comm = self.accept(&listen);
        self.plugin.close_listen(listen).expect("closeListen");
        comm
    }

    /// Registers a whole area.
    pub(crate) fn register(&self, comm: impl Into<Comm>, area: &Area) -> MHandle {
        self.plugin.reg_mr(comm, area.at(0), area.len(), PTR_HOST).expect("regMr")
    }

    pub(crate) fn deregister(&self, comm: impl Into<Comm>, registration: MHandle) {
        self.plugin.dereg_mr(comm, registration).expect("deregMr");
    }

    /// Tries to post a send of bytes of an area, which stay until it is done.
    pub(crate) fn try_send(
        &self,
        comm: SendComm,
        area: &Area,
        offset: usize,
        len: usize,
        registration: MHandle,
    ) -> Result<Option<Request>, CallError> {
        assert!(offset + len <= area.len());
        // SAFETY: inside the area, which lives until the connection is closed; scenarios write there only when the send is done.
        unsafe { self.plugin.isend(comm, area.at(offset), len, self.rank as i32, registration) }
    }

    /// Tries to post a receive into bytes of an area; `mark`: flags in it are looked for.
    pub(crate) fn try_receive(
        &self,
        comm: RecvComm,
        area: &Area,
        offset: usize,
        len: usize,
        registration: MHandle,
        mark: bool,
    ) -> Result<Option<Request>, CallError> {
        assert!(offset + len <= area.len());
        // SAFETY: inside the area, which lives until the connection is closed; scenarios use the bytes only when it is done.
        unsafe { self.plugin.irecv(comm, area.at(offset), len, 0, registration, mark) }
    }

    /// Posts a send, however often it has to be tried.
    pub(crate) fn send(&self, comm: SendComm, area: &Area, offset: usize, len: usize, mh: MHandle) -> Request {
        until(|| self.try_send(comm, area, offset, len, mh).expect("isend"))
    }

    /// Posts a receive, however often it has to be tried.
    pub(crate) fn receive(&self, comm: RecvComm, area: &Area, offset: usize, len: usize, mh: MHandle) -> Request {
        until(|| self.try_receive(comm, area, offset, len, mh, false).expect("irecv"))
    }

    /// Tests until done; the size.
    pub(crate) fn wait(&self, request: Request) -> usize {
        until(|| self.plugin.test(request).expect("test"))
    }

    /// Tests each of them until done.
    pub(crate) fn wait_all(&self, requests: impl IntoIterator<Item = Request>) {
        for request in requests {
            self.wait(request);
        }
    }

    /// Tests until the plugin reports an error.
    pub(crate) fn wait_for_error(&self, request: Request) -> CallError {
        until(|| match self.plugin.test(request) {
            Ok(None) => None,
            Ok(Some(size)) => panic!("done with {size} bytes where an error is due"),
            Err(error) => Some(error),
        })
    }

    pub(crate) fn close_sender(&self, comm: SendComm) {
        self.plugin.close_send(comm).expect("closeSend");
    }

    pub(crate) fn close_receiver(&self, comm: RecvComm) {
        self.plugin.close_recv(comm).expect("closeRecv");
    }

    /// Rank 0 sends to every other rank, one after the other: over no relay, over one, over two.
    pub(crate) fn each_way(&self, send: impl Fn(SendComm, usize), receive: impl Fn(RecvComm, usize)) {
        for peer in 1..self.world {
            let name = format!("way{peer}");
            if self.rank == 0 {
                let comm = self.sender(&name);
                send(comm, peer);
                self.close_sender(comm);
            } else if self.rank == peer {
                let comm = self.receiver(&name);
                receive(comm, peer);
                self.close_receiver(comm);
            }
        }
    }

    /// The end of the scenario on this node, together with all other `ranks`.
    pub(crate) fn leave_with(self, ranks: &[usize]) {
        self.hub.barrier_of("end of the scenario", ranks);
        self.plugin.finalize(self.ctx).expect("finalize");
        self.hub.leave(ranks);
    }
}

/// Repeats until there is an answer; leaves the core to others when that takes long, since nodes share few.
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let mut pause = Pause::default();
    loop {
        match look() {
            Some(found) => return found,
            None => pause.wait(),
        }
    }
}

/// How a loop that polls waits.
#[derive(Debug, Default)]
pub(crate) struct Pause(u32);

impl Pause {
    pub(crate) fn wait(&mut self) {
        self.0 += 1;
        if self.0 < 32 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(30));
        }
    }

    pub(crate) fn moved(&mut self, any: bool) {
        if any {
            self.0 = 0;
        } else {
            self.wait();
        }
    }
}
