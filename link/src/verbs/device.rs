//! The devices of this host, and which port has which address.
//!
//! A port is matched to an IPv4 address by its RoCE v2 GID, never by an index or a name: indices move when addresses change, and names say
//! nothing about cables. Opening takes milliseconds and belongs to start-up; everything after may be called from any thread. Knows nothing
//! of peers.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use super::context::Context;
use super::load;
use super::missing::{DeviceError, no_port};
use super::mr::{DeviceRegistration, MrCache, RegisterError};
use super::pd::Pd;
use super::port::{Gid, GidEntry, GidKind, Port, PortState};
use crate::Window;

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
    /// The only index that counts, instead of whichever has the address.
    gid_index: Option<u8>,
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
    /// [`probe`](load::probe). Ports that are down come along as long as one is up: their cables may be plugged in later.
    ///
    /// # Errors
    /// [`DeviceError`] for the first address that has no port, or for the first one if all ports are down.
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
        if let Some(first) = known.first()
            && known.iter().all(|known| known.place.port.state != PortState::Active)
        {
            active(first.address, &first.place.port)?;
        }
        Ok(Self { known: known.into(), devices: devices.into(), gid_index: None })
    }

    /// The same set, with this index of every port's GID table, now and whenever it is looked up.
    ///
    /// # Errors
    /// [`DeviceError::WrongIndex`] if a port has something else than its address there.
    pub fn with_gid_index(self, index: u8) -> Result<Self, DeviceError> {
        let set = Self { gid_index: Some(index), ..self };
        for known in set.known.iter().filter(|known| known.place.port.state == PortState::Active) {
            set.place(known.address)?;
        }
        Ok(set)
    }

    /// The ports behind the addresses, in the order of the addresses, as they were when opened.
    pub fn ports(&self) -> impl Iterator<Item = (Ipv4Addr, &Port)> {
        self.known.iter().map(|known| (known.address, &known.place.port))
    }

    /// Whether the address's port is known to be down now. Some microseconds.
    pub fn is_down(&self, address: Ipv4Addr) -> bool {
        let Ok(Known { place, .. }) = self.known(address) else { return false };
        // A port that cannot be asked is not known to be down.
        place.device.context.state(place.port.port).is_ok_and(|state| state != PortState::Active)
    }

    /// Why the ports that were down when opened cannot be used, each.
    pub fn down_at_start(&self) -> impl Iterator<Item = DeviceError> {
        self.known.iter().filter_map(|known| active(known.address, &known.place.port).err())
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
        let Place { device, port, entry } = &self.known(address)?.place;
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
        let entry = match self.gid_index {
            Some(index) if index != found.index => {
                let forced = now.gids.iter().find(|entry| entry.index == index && entry.gid == found.gid).cloned();
                forced.ok_or_else(|| wrong_index(context, number, address, index, found.index))?
            }
            _ => found,
        };
        Ok(Place { device: Arc::clone(device), port: now, entry })
    }

    /// The index of the address's GID now, most likely `last`. Cheaper than [`place`](Self::place) if it is.
    pub(super) fn index_now(&self, address: Ipv4Addr, last: u8) -> Result<u8, DeviceError> {
        let place = &self.known(address)?.place;
        match place.device.context.entry(place.port.port, last) {
            Some((entry, GidKind::RoceV2)) if entry.gid == Gid::of(address) => Ok(last),
            _ => Ok(self.place(address)?.entry.index),
        }
    }

    fn known(&self, address: Ipv4Addr) -> Result<&Known, DeviceError> {
        self.known.iter().find(|known| known.address == address).ok_or_else(|| {
            let opened: Vec<_> = self.known.iter().map(|known| known.address.to_string()).collect();
            DeviceError::NotOpened { address, opened: opened.join(", ") }
        })
    }
}

#[cold]
fn wrong_index(context: &Context, port: u8, address: Ipv4Addr, index: u8, right: u8) -> DeviceError {
    let holds = match context.entry(port, index) {
        Some((entry, kind)) => format!("{} ({kind})", entry.gid),
        None => "empty".into(),
    };
    DeviceError::WrongIndex { address, device: context.name.clone(), port, index, holds, right }
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
        return Err(no_port(all.iter().flat_map(|(_, ports)| ports), address));
    };
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
