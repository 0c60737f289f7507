//! The trainer ranks as a learner sees them.

use std::time::{Duration, Instant};

use tch::{Device, Kind, TchError, Tensor};

use scalerl_torch::collective::{CollectiveError, ProcessGroup};

/// The trainer ranks, seen from one of them. What a learner's own tensors travel in is another group,
/// of the same members in the same order: NCCL between GPUs, Gloo between CPUs.
#[derive(Debug)]
pub struct Ranks {
    /// For small things and for what comes from the CPU: Gloo.
    pub control: ProcessGroup,
}

impl Ranks {
    pub fn rank(&self) -> usize {
        self.control.rank()
    }

    pub fn size(&self) -> usize {
        self.control.size()
    }

    /// Everybody's numbers, in the order of ranks.
    pub fn numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, RankError> {
        let own = Tensor::f_from_slice(own)?;
        let all =
            Tensor::f_zeros([(self.size() * own.numel()) as i64], (Kind::Double, Device::Cpu))?;
        self.control.all_gather(&all, &own)?;
        let all = Vec::<f64>::try_from(all)?;
        Ok(all.chunks(own.numel().max(1)).map(<[f64]>::to_vec).collect())
    }
}

/// How often ranks that work apart tell each other whether they are done.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// The longest that one may take.
const LONGEST: Duration = Duration::from_hours(1);

impl Ranks {
    /// Has every rank do a job of its own for as long as it takes. Disks are of different speeds, and the
    /// deadline of an operation is one of the network: those that are done keep telling each other so. A
    /// rank that dies is found out by its silence, a job without an end by the clock.
    pub fn each_in_its_time<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, RankError> {
        let begun = Instant::now();
        let working = std::thread::spawn(job);
        loop {
            let told = Instant::now();
            while !working.is_finished() && told.elapsed() < TOLD_EVERY {
                std::thread::sleep(TOLD_EVERY / 100);
            }
            let own = f64::from(u8::from(working.is_finished()));
            if self.numbers(&[own])?.iter().all(|done| done[0] > 0.0) {
                break;
            }
            if begun.elapsed() > LONGEST {
                let problem = format!("a rank is not done within {} s", LONGEST.as_secs());
                return Err(TchError::Torch(problem).into());
            }
        }
        Ok(working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// Bytes of what rank 0 tells: longer than any path.
const TOLD: usize = 8192;

const CPU_BYTES: (Kind, Device) = (Kind::Uint8, Device::Cpu);

/// Text as so many bytes; what is too long is cut.
fn bytes(text: &str, length: usize) -> Result<Tensor, TchError> {
    let mut bytes: Vec<u8> = text.bytes().take(length).collect();
    bytes.resize(length, 0);
    Tensor::f_from_slice(&bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}

impl Ranks {
    /// Bytes of a rank's sentence; what is longer is cut.
    pub const SENTENCE: usize = 1024;

    /// What everybody says, in the order of ranks.
    pub fn sentences(&self, own: &str) -> Result<Vec<String>, RankError> {
        let all = Tensor::f_zeros([(Self::SENTENCE * self.size()) as i64], CPU_BYTES)?;
        self.control.all_gather(&all, &bytes(own, Self::SENTENCE)?)?;
        let all = Vec::<u8>::try_from(all)?;
        Ok(all.chunks(Self::SENTENCE).map(text).collect())
    }

    /// What rank 0 says, on every rank.
    pub fn tell(&self, own: &str) -> Result<String, RankError> {
        let told = bytes(own, TOLD)?;
        self.control.broadcast(&[&told], 0)?;
        Ok(text(&Vec::<u8>::try_from(told)?))
    }
}

/// Why something between ranks did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}
