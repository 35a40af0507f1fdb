//! Reads the `[policy]` table of a topology file.

use super::table::{Report, Table};
use super::{POLICY_KEYS, ROUTE_KEYS};
use crate::check::Places;
use crate::{Differences, PinnedRoute, Policy, ProblemCode, nearest};

pub(super) fn read_policy(top: &Table<'_>, places: &mut Places, report: &mut Report) -> Policy {
    let Some(value) = top.get("policy") else { return Policy::default() };
    let line = report.lines.at(value.span().start);
    let Some(table) = value.get_ref().as_table() else {
        let message = format!("a [policy] table wanted, {} found", value.get_ref().type_str());
        top.problem(report, ProblemCode::BadValue, "policy", message);
        return Policy::default();
    };
    let table = Table { table, line, node: "", path: "policy." };
    table.only(report, POLICY_KEYS);
    let max_relays = table.number(report, "max_relays", (0, i64::from(u16::MAX)));
    let mut policy = Policy {
        max_relays: max_relays.and_then(|number| u16::try_from(number).ok()),
        differences: read_differences(&table, report),
        routes: Vec::new(),
    };
    for (index, (route, line)) in table.tables(report, "route").into_iter().enumerate() {
        let path = format!("policy.route[{index}].");
        if let Some(route) = read_route(&Table { table: route, line, node: "", path: &path }, report) {
            policy.routes.push(route);
            places.routes.push((index, Some(line)));
        }
    }
    policy
}

fn read_differences(policy: &Table<'_>, report: &mut Report) -> Differences {
    let Some(text) = policy.string(report, "differences") else { return Differences::default() };
    text.parse().unwrap_or_else(|()| {
        let known = Differences::ALL.map(Differences::name);
        let remedy = match nearest(text, &known) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("use one of {}", known.join(", ")),
        };
        policy.problem(report, ProblemCode::BadValue, "differences", format!("{text:?} is not known; {remedy}"));
        Differences::default()
    })
}

/// `None` if a part of it is missing or of another type.
fn read_route(route: &Table<'_>, report: &mut Report) -> Option<PinnedRoute> {
    route.only(report, ROUTE_KEYS);
    for (key, remedy) in [
        ("from", "name the node where the route begins"),
        ("to", "name the node where the route ends"),
        ("via", "list the relays in between like [\"b\", \"c\"]"),
    ] {
        if route.get(key).is_none() {
            route.missing(report, key, remedy);
        }
    }
    let (from, to) = (route.string(report, "from"), route.string(report, "to"));
    let via = route.strings(report, "via")?;
    Some(PinnedRoute { from: from?.to_owned(), to: to?.to_owned(), via })
}
