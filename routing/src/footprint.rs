//! How much memory a router holds. Counts what its lists and tables hold, not what the allocator adds. Any thread.

use crate::{EdgeId, End, LinkId, NodeId, Route, Router};
use std::mem::size_of;

impl Router {
    /// Bytes that it holds on the heap and in itself; more once a tie had to be broken, see [`Router::choose`].
    pub fn bytes_held(&self) -> usize {
        let routes = |routes: &mut dyn Iterator<Item = &Route>| {
            // An entry of a table: the pair, the route, and a byte of its own; then the route's nodes.
            let entry = size_of::<([NodeId; 2], Route)>() + 1;
            routes.map(|route| entry + size_of_val(route.nodes())).sum::<usize>()
        };
        let neighbours = self.neighbours.iter().map(|list| size_of_val(&list[..])).sum::<usize>();
        let rails = self.rails.iter().map(|list| list.len() * size_of::<(LinkId, [End; 2])>()).sum::<usize>();
        let lists = (self.neighbours.len() + self.rails.len()) * size_of::<Vec<()>>();
        let nodes = size_of_val(&self.place[..])
            + size_of_val(&self.order[..])
            + size_of_val(&self.keys[..])
            + size_of_val(&self.relay[..]);
        let pairs = self.by_pair.len() * (size_of::<([NodeId; 2], EdgeId)>() + 1);
        let tables = routes(&mut self.pinned.values()) + self.spread.get().map_or(0, |it| routes(&mut it.routes()));
        size_of::<Self>() + neighbours + rails + lists + nodes + size_of_val(&self.capacity[..]) + pairs + tables
    }
}
