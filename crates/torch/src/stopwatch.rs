//! Where the time of a step goes: laps that wait for the device.
//!
//! Waiting at every lap costs a little, so a watch is only handed to the learner by benches.

use std::time::Instant;

use tch::{Device, TchError};

use crate::shim;

/// Seconds per named part, in order of first appearance.
#[derive(Debug)]
pub struct Stopwatch {
    device: Device,
    last: Instant,
    pub laps: Vec<(&'static str, f64)>,
}

impl Stopwatch {
    pub fn start(device: Device) -> Result<Self, TchError> {
        shim::synchronize(device)?;
        Ok(Self { device, last: Instant::now(), laps: Vec::new() })
    }

    /// Books the time since the last lap under `part`.
    pub fn lap(&mut self, part: &'static str) -> Result<(), TchError> {
        shim::synchronize(self.device)?;
        let now = Instant::now();
        let seconds = (now - self.last).as_secs_f64();
        match self.laps.iter_mut().find(|(name, _)| *name == part) {
            Some((_, sum)) => *sum += seconds,
            None => self.laps.push((part, seconds)),
        }
        self.last = now;
        Ok(())
    }
}
