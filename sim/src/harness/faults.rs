//! Waits for the times at which something goes wrong, and lets it go wrong then.
//!
//! One thread a run. Knows times and what to say; what is done is the fabric's affair ([`super::cables`], [`super::netns`]).

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::args::{ArgsError, Fault, FaultKind, RunArgs};
use super::scene::Scene;
use super::{cables, netns};

/// One thing to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step<W> {
    /// After the start.
    pub(super) at: Duration,
    /// As the user wrote it.
    pub(super) text: String,
    pub(super) what: W,
}

/// The faults of a run, from when it begins.
#[derive(Debug, Default)]
pub(super) struct Faults(Option<Running>);

#[derive(Debug)]
struct Running {
    stop: Sender<()>,
    thread: JoinHandle<Vec<String>>,
}

/// Does what is for the very start, and begins to wait for the rest.
///
/// # Errors
/// A fault names what is not there, or what this fabric cannot have.
pub(super) fn begin(args: &RunArgs, scene: &Scene) -> Result<Faults, ArgsError> {
    if let Some(netns) = scene.netns() {
        return netns::begin_faults(&args.faults, &args.topology, netns);
    }
    if let Some(cables) = scene.cables() {
        return cables::begin_faults(&args.faults, &args.topology, cables);
    }
    match args.faults.iter().find(|fault| !matches!(fault.what, FaultKind::Absent(_))) {
        Some(fault) => Err(ArgsError::RealPorts(fault.to_string())),
        None => Ok(Faults::default()),
    }
}

impl Faults {
    /// As [`begin`], with the steps and what carries one out.
    pub(super) fn of<W: Send + 'static>(
        mut steps: Vec<Step<W>>,
        carry_out: impl Fn(&W) -> Result<(), String> + Send + 'static,
    ) -> Result<Self, ArgsError> {
        let carry_out = move |step: &Step<W>| {
            eprintln!("fault: {}", step.text);
            carry_out(&step.what).err().map(|error| format!("the fault {:?} did not come about: {error}", step.text))
        };
        steps.sort_by_key(|step| step.at);
        let later = steps.split_off(steps.partition_point(|step| step.at.is_zero()));
        let mut problems: Vec<String> = steps.iter().filter_map(&carry_out).collect();
        if later.is_empty() && problems.is_empty() {
            return Ok(Self::default());
        }
        let (stop, stopped) = channel::<()>();
        let began = Instant::now();
        let work = move || {
            for step in later {
                let left = (began + step.at).saturating_duration_since(Instant::now());
                if stopped.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                    problems.extend(carry_out(&step));
                } else {
                    problems.push(format!("the run was over before the fault {:?}", step.text));
                }
            }
            problems
        };
        let thread = std::thread::Builder::new().name("faults".to_owned()).spawn(work);
        let thread = thread.map_err(|error| ArgsError::Fault(format!("no thread for faults: {error}")))?;
        Ok(Self(Some(Running { stop, thread })))
    }

    /// Ends the waiting; answers what did not come about.
    pub(super) fn end(self) -> Vec<String> {
        let Some(running) = self.0 else { return Vec::new() };
        drop(running.stop);
        running.thread.join().unwrap_or_else(|_| vec!["the thread of the faults panicked".to_owned()])
    }
}

/// The steps of all faults that come later than the start; `of` says what is to be done for one.
pub(super) fn steps<W>(
    faults: &[Fault],
    of: impl Fn(&Fault) -> Result<Vec<W>, ArgsError>,
) -> Result<Vec<Step<W>>, ArgsError> {
    let mut steps = Vec::new();
    for fault in faults {
        let step = |what| Step { at: fault.at, text: fault.to_string(), what };
        steps.extend(of(fault)?.into_iter().map(step));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_their_order_and_those_that_failed_or_were_not_reached_are_told() {
        // given steps of which one is for the start, one fails, and one is for a time that does not come
        let (done, told) = channel();
        let step =
            |at, what: &str| Step { at: Duration::from_millis(at), text: what.to_owned(), what: what.to_owned() };
        let steps = vec![step(60_000, "never"), step(20, "bad"), step(0, "first")];
        let faults = Faults::of(steps, move |what: &String| {
            done.send(what.clone()).map_err(|_| "nobody listens".to_owned())?;
            if what == "bad" { Err("broken".to_owned()) } else { Ok(()) }
        });
        let faults = faults.expect("a thread");
        // when the run lasts until the second, then both came in their order
        assert_eq!((told.recv().expect("first"), told.recv().expect("second")), ("first".to_owned(), "bad".to_owned()));
        let problems = faults.end();
        assert_eq!(
            problems,
            ["the fault \"bad\" did not come about: broken", "the run was over before the fault \"never\""]
        );
    }
}
