//! Which job this process belongs to, as a number that all its processes come to.
//!
//! Read once from the environment, at the start of the node. Processes of a job relay for each other; a wrong guess only makes them relay by
//! the process that owns a node.

use std::ffi::OsStr;

use mesh_relay::discovery::NO_RANK;

/// What launchers set the same for all processes of a job and differently for two jobs, first to last.
const NAMES: [&str; 8] = [
    "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "NCCL_COMM_ID",
];

/// The rank of this process in its job, [`NO_RANK`] if nothing says, and how many ranks the job has.
pub(super) fn rank() -> (u16, Option<usize>) {
    let number = |names: [&str; 3]| {
        let first = names.into_iter().find_map(|name| std::env::var(name).ok());
        first.and_then(|text| text.trim().parse::<usize>().ok())
    };
    let rank = number(["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]);
    let size = number(["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"]);
    (rank.and_then(|rank| u16::try_from(rank).ok()).unwrap_or(NO_RANK), size)
}

/// The number; 0 if nothing says.
pub(super) fn number(set: Option<&str>) -> u32 {
    of(set, |name| std::env::var_os(name))
}

fn of<T: AsRef<OsStr>>(set: Option<&str>, var: impl Fn(&str) -> Option<T>) -> u32 {
    let mut text = Vec::new();
    match set {
        Some(name) => text.extend_from_slice(name.as_bytes()),
        None => {
            for name in NAMES {
                let value = var(name);
                let value = value.as_ref().map(|value| value.as_ref().as_encoded_bytes()).unwrap_or_default();
                if !value.is_empty() {
                    text.extend_from_slice(value);
                    text.push(0);
                }
            }
        }
    }
    if text.is_empty() {
        return 0;
    }
    // FNV-1a, folded; 0 is taken.
    let hash = text
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    ((hash >> 32) as u32 ^ hash as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_a_job_have_one_number_and_two_jobs_have_two() {
        let env = |pairs: &'static [(&'static str, &'static str)]| {
            move |name: &str| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1)
        };
        let first = of(None, env(&[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "0")]));
        let same = of(None, env(&[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500"), ("RANK", "1")]));
        let other = of(None, env(&[("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29501"), ("RANK", "0")]));
        assert_ne!(first, 0);
        assert_eq!(first, same);
        assert_ne!(first, other);
        // nothing that says, nothing known; what is set comes before all else
        assert_eq!(of(None, env(&[("RANK", "1"), ("MASTER_ADDR", "")])), 0);
        assert_eq!(of(Some("a"), env(&[])), of(Some("a"), env(&[("MASTER_PORT", "29500")])));
        assert_ne!(of(Some("a"), env(&[])), of(Some("b"), env(&[])));
    }
}
