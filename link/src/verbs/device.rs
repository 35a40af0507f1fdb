//! The devices of this host, and which port has which address.
//!
//! A port is matched to an IPv4 address by its RoCE v2 GID, never by an index or a name: indices move when addresses change, and names say
//! nothing about cables. Opening takes milliseconds and belongs to start-up; everything after may be called from any thread. Knows nothing
//! of peers.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::{Context, Gid, GidEntry, Port, PortState};
use super::load::{self, LoadError};
use super::mr::{DeviceRegistration, MrCache, RegisterError};
use super::pd::Pd;
use crate::Window;

/// Devices cannot be used, with what was found instead.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The library cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The library is there and finds no device.
    #[error(
        "{} finds no RDMA device{}", library.display(),
        if *.nodes { "; is the NIC's driver loaded (rdma link)?" }
        else { ": there is no /dev/infiniband; load ib_uverbs, or pass --device=/dev/infiniband to the container" }
    )]
    None {
        /// The library.
        library: PathBuf,
        /// Whether `/dev/infiniband` exists.
        nodes: bool,
    },
    /// A device is there and does not open.
    #[error("cannot open RDMA device {device}: {source}; may this user read and write /dev/infiniband/uverbs*?")]
    Open {
        /// Device.
        device: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// No port has the address.
    #[error("no RDMA port has a RoCE v2 GID of {address}; found: {found}")]
    NoPort {
        /// The address looked for.
        address: Ipv4Addr,
        /// All ports with their addresses.
        found: String,
    },
    /// The port is there and does not carry traffic.
    #[error("RDMA port {port} of {device}, which has {address}, is {state}: is the cable plugged in at both ends?")]
    PortNotActive {
        /// The address looked for.
        address: Ipv4Addr,
        /// Device.
        device: String,
        /// Port of the device.
        port: u8,
        /// Its state.
        state: PortState,
    },
    /// The port had the address when devices were opened and has it no more.
    #[error(
        "the RoCE v2 GID of {address} is gone from port {port} of {device} (it was at index {index}); found now: {found}"
    )]
    GidGone {
        /// The address.
        address: Ipv4Addr,
        /// Device.
        device: String,
        /// Port of the device.
        port: u8,
        /// Where it was.
        index: u8,
        /// The port as it is now.
        found: String,
    },
    /// A call failed.
    #[error("{call} failed for RDMA device {device}: {source}")]
    Call {
        /// The call.
        call: &'static str,
        /// Device.
        device: String,
        /// What the operating system says.
        source: io::Error,
    },
}

/// A device with memory registered.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) context: Arc<Context>,
    pub(super) pd: Arc<Pd>,
    pub(super) regions: Arc<MrCache>,
}

/// The place of a GID, as of now.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) device: Arc<Device>,
    pub(super) port: Port,
    pub(super) entry: GidEntry,
}

#[derive(Debug)]
struct Known {
    address: Ipv4Addr,
    place: Place,
}

/// The devices behind a set of addresses. Cheap to clone; any thread.
#[derive(Clone, Debug)]
pub struct DeviceSet {
    known: Arc<[Known]>,
    devices: Arc<[Arc<Device>]>,
}

/// All ports of all devices, for reports. `library` as for [`probe`](load::probe).
///
/// # Errors
/// [`DeviceError`] if there is no library or no device.
pub fn survey(library: Option<&Path>) -> Result<Vec<Port>, DeviceError> {
    let mut all = Vec::new();
    for context in open_all(library)? {
        all.extend(ports_of(&context)?);
    }
    Ok(all)
}

fn open_all(library: Option<&Path>) -> Result<Vec<Arc<Context>>, DeviceError> {
    let verbs = load::verbs(library)?;
    let contexts = Context::open_all(verbs).map_err(|(device, source)| DeviceError::Open { device, source })?;
    if contexts.is_empty() {
        let nodes = Path::new("/dev/infiniband").exists();
        return Err(DeviceError::None { library: verbs.library.clone(), nodes });
    }
    Ok(contexts)
}

fn ports_of(context: &Context) -> Result<Vec<Port>, DeviceError> {
    let call = |source| DeviceError::Call { call: "ibv_query_port", device: context.name.clone(), source };
    context.ports().map_err(call)
}

impl DeviceSet {
    /// Opens the devices whose ports have these addresses. Devices without one stay closed. `library` as for
    /// [`probe`](load::probe).
    ///
    /// # Errors
    /// [`DeviceError`] for the first address that has no active port.
    pub fn open(addresses: &[Ipv4Addr], library: Option<&Path>) -> Result<Self, DeviceError> {
        let mut all = Vec::new();
        for context in open_all(library)? {
            let ports = ports_of(&context)?;
            all.push((context, ports));
        }
        let mut devices: Vec<Arc<Device>> = Vec::new();
        let mut known = Vec::new();
        for &address in addresses {
            let (context, port, entry) = choose(&all, address)?;
            let device = match devices.iter().find(|device| Arc::ptr_eq(&device.context, context)) {
                Some(device) => Arc::clone(device),
                None => {
                    let call =
                        |source| DeviceError::Call { call: "ibv_alloc_pd", device: context.name.clone(), source };
                    let pd = Arc::new(Pd::new(Arc::clone(context)).map_err(call)?);
                    let regions = MrCache::new(Arc::clone(&pd));
                    let device = Arc::new(Device { context: Arc::clone(context), pd, regions });
                    devices.push(Arc::clone(&device));
                    device
                }
            };
            known.push(Known { address, place: Place { device, port: port.clone(), entry: entry.clone() } });
        }
        Ok(Self { known: known.into(), devices: devices.into() })
    }

    /// The ports behind the addresses, in the order of the addresses, as they were when opened.
    pub fn ports(&self) -> impl Iterator<Item = (Ipv4Addr, &Port)> {
        self.known.iter().map(|known| (known.address, &known.place.port))
    }

    /// Registers a window with every device, so that endpoints on any of them may send from it and expose it without further cost.
    /// Pins the pages that it touches. Takes microseconds to milliseconds.
    ///
    /// # Errors
    /// [`RegisterError`], with nothing left registered.
    pub fn register(&self, window: Window) -> Result<Registration, RegisterError> {
        let all: Result<_, _> = self.devices.iter().map(|device| device.regions.register(window)).collect();
        Ok(Registration { all: all? })
    }

    /// Where the address is now: its port is asked anew, since tables of GIDs change while a job runs.
    pub(super) fn place(&self, address: Ipv4Addr) -> Result<Place, DeviceError> {
        let Some(known) = self.known.iter().find(|known| known.address == address) else {
            let mut found = String::new();
            for known in &*self.known {
                let _ = write!(found, "{} ", known.address);
            }
            return Err(DeviceError::NoPort { address, found: format!("{}were opened", found) });
        };
        let Place { device, port, entry } = &known.place;
        let (context, number) = (&device.context, port.port);
        let call = |source| DeviceError::Call { call: "ibv_query_port", device: context.name.clone(), source };
        let now = context.port(number).map_err(call)?;
        let Some(found) = now.gids.iter().find(|e| e.gid == Gid::of(address)).cloned() else {
            let device = context.name.clone();
            return Err(DeviceError::GidGone {
                address,
                device,
                port: number,
                index: entry.index,
                found: now.to_string(),
            });
        };
        active(address, &now)?;
        Ok(Place { device: Arc::clone(device), port: now, entry: found })
    }
}

/// The port among all that has the address.
fn choose(
    all: &[(Arc<Context>, Vec<Port>)],
    address: Ipv4Addr,
) -> Result<(&Arc<Context>, &Port, &GidEntry), DeviceError> {
    let with = all.iter().flat_map(|(context, ports)| ports.iter().map(move |port| (context, port)));
    let mut matching = with
        .filter_map(|(context, port)| {
            port.gids.iter().find(|entry| entry.gid == Gid::of(address)).map(|entry| (context, port, entry))
        })
        .collect::<Vec<_>>();
    // An address that was moved may linger on a port that is down.
    matching.sort_by_key(|(_, port, _)| port.state != PortState::Active);
    let Some(&(context, port, entry)) = matching.first() else {
        let found: Vec<_> = all.iter().flat_map(|(_, ports)| ports.iter().map(Port::to_string)).collect();
        return Err(DeviceError::NoPort { address, found: found.join("; ") });
    };
    active(address, port)?;
    Ok((context, port, entry))
}

fn active(address: Ipv4Addr, port: &Port) -> Result<(), DeviceError> {
    if port.state == PortState::Active {
        return Ok(());
    }
    let device = port.device.clone();
    Err(DeviceError::PortNotActive { address, device, port: port.port, state: port.state })
}

/// A promise that memory stays registered with all devices of a set while this lives. Dropping it unpins the memory once nothing posted
/// refers to it any more; whoever drops it must be done with the memory, as for [`Window::new`].
#[derive(Debug)]
#[must_use = "the memory is given back when this is dropped"]
pub struct Registration {
    #[expect(dead_code, reason = "held for its drop")]
    all: Vec<DeviceRegistration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_device_is_told_with_what_to_do() {
        let error = DeviceError::None { library: "libibverbs.so.1".into(), nodes: false };
        assert!(error.to_string().contains("--device=/dev/infiniband"), "{error}");
        let error = DeviceError::None { library: "libibverbs.so.1".into(), nodes: true };
        assert!(error.to_string().contains("rdma link"), "{error}");
    }

    #[test]
    fn errors_name_address_device_and_state() {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let error = DeviceError::PortNotActive { address, device: "mlx5_0".into(), port: 1, state: PortState::Down };
        assert_eq!(
            error.to_string(),
            "RDMA port 1 of mlx5_0, which has 10.0.0.1, is down: is the cable plugged in at both ends?"
        );
        let error = choose(&[], address).unwrap_err();
        assert!(error.to_string().starts_with("no RDMA port has a RoCE v2 GID of 10.0.0.1"), "{error}");
    }
}
