//! How many cores' worth of time the process's cgroups let it have.
//!
//! Must not know: which cores. Looks at the process's own group and at all above it, as each bounds those below; groups of version 2 and
//! of version 1, which a machine may have both. Runs on the relay thread, as it starts.

use super::files::Files;

/// The least that any group allows, rounded up to whole cores; `None` without a limit.
pub(super) fn cores_worth(files: &mut Files<'_>) -> Option<usize> {
    let groups = files.text("/proc/self/cgroup")?;
    let mounts = files.text("/proc/self/mountinfo")?;
    let mut least = None;
    for group in groups.lines() {
        // Number, controllers, path; version 2 has the number 0 and no controllers.
        let mut parts = group.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let unified = number == "0" && controllers.is_empty();
        if !unified && !has(controllers, "cpu") {
            continue;
        }
        let Some((mount, below)) = find(&mounts, unified, path) else { continue };
        for folder in upwards(mount, below) {
            let worth = if unified { unified_worth(files, &folder) } else { legacy_worth(files, &folder) };
            least = least.into_iter().chain(worth).min();
        }
    }
    least
}

fn has(list: &str, word: &str) -> bool {
    list.split(',').any(|part| part == word)
}

/// Where the groups are mounted, and the path of this one below that.
fn find<'a>(mounts: &'a str, unified: bool, path: &'a str) -> Option<(&'a str, &'a str)> {
    let mounted = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut kind = kind.split(' ');
        let (root, mount) = (place.next()?, place.next()?);
        let fits = match kind.next()? {
            "cgroup2" => unified,
            "cgroup" => !unified && has(kind.nth(1)?, "cpu"),
            _ => false,
        };
        fits.then_some((root, mount))
    });
    // In a container the mount may show only a part of the tree. If that part is not on the way to the own group, its top is all
    // that can be looked at.
    let mut found = None;
    for (root, mount) in mounted {
        let below = path
            .strip_prefix(root.trim_end_matches('/'))
            .filter(|below| (below.is_empty() || below.starts_with('/')) && !below.split('/').any(|part| part == ".."));
        match below {
            Some(below) => return Some((mount, below)),
            None => found = found.or(Some((mount, ""))),
        }
    }
    found
}

/// The folder of a group, and those of all groups above it, up to the mount.
fn upwards(mount: &str, below: &str) -> Vec<String> {
    let below = below.trim_end_matches('/');
    let ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]);
    let mut folders: Vec<String> =
        ends.map(|end| format!("{}{}", mount.trim_end_matches('/'), &below[..end])).collect();
    folders.reverse();
    folders
}

/// `cpu.max`: quota and period in microseconds; the quota may be `max`.
fn unified_worth(files: &mut Files<'_>, folder: &str) -> Option<usize> {
    let path = format!("{folder}/cpu.max");
    let text = files.text(&path)?;
    let mut words = text.split_whitespace();
    let (quota, period) = (words.next(), words.next());
    if quota == Some("max") {
        return None;
    }
    let worth = whole_cores(quota, period);
    if worth.is_none() {
        files.odd(&path, &text);
    }
    worth
}

/// Quota and period in files of their own; -1 is no quota.
fn legacy_worth(files: &mut Files<'_>, folder: &str) -> Option<usize> {
    let path = format!("{folder}/cpu.cfs_quota_us");
    let quota = files.text(&path)?;
    if quota.trim() == "-1" {
        return None;
    }
    let period = files.text(&format!("{folder}/cpu.cfs_period_us"));
    let worth = whole_cores(Some(quota.trim()), period.as_deref().map(str::trim));
    if worth.is_none() {
        files.odd(&path, &format!("{} of {}", quota.trim(), period.as_deref().unwrap_or("no period").trim()));
    }
    worth
}

fn whole_cores(quota: Option<&str>, period: Option<&str>) -> Option<usize> {
    let positive = |text: Option<&str>| text?.parse::<u64>().ok().filter(|n| *n > 0);
    usize::try_from(positive(quota)?.div_ceil(positive(period)?)).ok()
}
