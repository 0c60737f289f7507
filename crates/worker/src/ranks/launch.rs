//! What a launcher told this process about the others.
//!
//! | variable | of torchrun, or by hand | of `srun` |
//! |---|---|---|
//! | rank | `RANK` | `SLURM_PROCID` |
//! | number of ranks | `WORLD_SIZE` | `SLURM_NTASKS` |
//! | rank on this machine | `LOCAL_RANK` (0 if not given) | `SLURM_LOCALID` |
//! | where rank 0 is | `MASTER_ADDR`, `MASTER_PORT` | the same, set by the batch script |
//!
//! torchrun's agent serves the store itself and says so in `TORCHELASTIC_USE_AGENT_STORE`; it keeps
//! it over restarts, which `TORCHELASTIC_RESTART_COUNT` tells apart. Where rank 0 serves it to other
//! machines, all ranks must know the secret in `SCALERL_TOKEN`.

use std::net::IpAddr;

use scalerl_torch::collective::Token;
use thiserror::Error;

/// Who serves the store at `address:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreHost {
    /// Rank 0 of ours.
    RankZero,
    /// Whoever started us.
    Launcher,
}

/// One process among several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub rank: usize,
    /// Processes in all.
    pub world: usize,
    /// Rank among those on this machine: which GPU to take.
    pub local_rank: usize,
    pub address: String,
    pub port: u16,
    pub host: StoreHost,
    /// Which start of the same job this is; keys of an earlier one may still be in the store.
    pub attempt: u64,
    /// What ranks must know to take part.
    pub token: Option<Token>,
}

/// Why the environment does not say who we are.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LaunchError {
    #[error("{given} is set, but {missing} is not")]
    Missing { given: &'static str, missing: &'static str },
    #[error("{name} is `{value}`: {problem}")]
    BadValue { name: &'static str, value: String, problem: &'static str },
    #[error(
        "anybody who reaches {address}:{port} could take part in this run: SCALERL_TOKEN is not set"
    )]
    Unguarded { address: String, port: u16 },
}

impl LaunchError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        if matches!(self, Self::Unguarded { .. }) {
            return "set SCALERL_TOKEN to the same secret for all processes, for example to what \
                    `openssl rand -hex 16` prints";
        }
        "start with `torchrun --no-python scalerl …`, with the shipped sbatch script, or set RANK, \
         WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every process"
    }
}

/// The variable with the secret that ranks must know.
pub const TOKEN: &str = "SCALERL_TOKEN";

/// Names of rank, number of ranks and local rank, by launcher.
const NAMES: [[&str; 3]; 2] =
    [["RANK", "WORLD_SIZE", "LOCAL_RANK"], ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"]];

impl Launch {
    /// What the environment says; `None` where it speaks of no other process.
    pub fn from_environment() -> Result<Option<Self>, LaunchError> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    /// As above, from any source of variables.
    pub fn from_variables(
        get: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, LaunchError> {
        let is_named =
            |names: &&[&'static str; 3]| get(names[0]).is_some() || get(names[1]).is_some();
        let Some([rank, world, local]) = NAMES.iter().find(is_named) else { return Ok(None) };
        let is_slurm = *rank == NAMES[1][0];
        let need = |name: &'static str, given: &'static str| {
            get(name).ok_or(LaunchError::Missing { given, missing: name })
        };
        // A shell inside an allocation has the number of tasks without being one.
        if is_slurm && (get(rank).is_none() || get(world).as_deref() == Some("1")) {
            return Ok(None);
        }
        let (rank_text, world_text) = (need(rank, world)?, need(world, rank)?);
        let number = |name: &'static str, value: &str| {
            let problem = "a whole number is needed";
            let bad = |_| LaunchError::BadValue { name, value: value.to_owned(), problem };
            value.parse::<usize>().map_err(bad)
        };
        let launch = Self {
            rank: number(rank, &rank_text)?,
            world: number(world, &world_text)?,
            local_rank: get(local).map_or(Ok(0), |value| number(local, &value))?,
            address: need("MASTER_ADDR", rank)?,
            port: port(&need("MASTER_PORT", rank)?)?,
            host: match get("TORCHELASTIC_USE_AGENT_STORE").as_deref() {
                Some("True" | "true" | "1") => StoreHost::Launcher,
                _ => StoreHost::RankZero,
            },
            attempt: get("TORCHELASTIC_RESTART_COUNT").and_then(|n| n.parse().ok()).unwrap_or(0),
            token: get(TOKEN).map(|text| chosen(&text)).transpose()?,
        };
        if launch.rank >= launch.world {
            let problem = "ranks count from 0 and stay below the number of processes";
            return Err(LaunchError::BadValue { name: rank, value: rank_text, problem });
        }
        launch.check_token()?;
        Ok(Some(launch))
    }

    /// A store that other machines reach is not for everybody.
    fn check_token(&self) -> Result<(), LaunchError> {
        let is_near = match self.address.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.address == "localhost",
        };
        if is_near || self.world == 1 || self.host == StoreHost::Launcher || self.token.is_some() {
            return Ok(());
        }
        Err(LaunchError::Unguarded { address: self.address.clone(), port: self.port })
    }
}

fn chosen(text: &str) -> Result<Token, LaunchError> {
    let problem = "at least 16 characters are needed";
    Token::chosen(text).ok_or(LaunchError::BadValue { name: TOKEN, value: "***".into(), problem })
}

fn port(value: &str) -> Result<u16, LaunchError> {
    let bad = || LaunchError::BadValue {
        name: "MASTER_PORT",
        value: value.to_owned(),
        problem: "a port from 1 to 65535 is needed",
    };
    value.parse().ok().filter(|port| *port > 0).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>, LaunchError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Launch::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    const MASTER: [(&str, &str); 2] = [("MASTER_ADDR", "node-7"), ("MASTER_PORT", "29500")];
    const SECRET: (&str, &str) = (TOKEN, "0123456789abcdef");

    #[test]
    fn torchrun_and_slurm_are_understood() {
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")];
        let agent = [("TORCHELASTIC_USE_AGENT_STORE", "True"), ("TORCHELASTIC_RESTART_COUNT", "2")];
        let found = launch(&[&torchrun[..], &MASTER, &agent].concat()).unwrap().unwrap();
        assert_eq!((found.rank, found.world, found.local_rank), (3, 4, 1));
        assert_eq!((found.host, found.attempt), (StoreHost::Launcher, 2));
        let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_LOCALID", "0")];
        let found = launch(&[&slurm[..], &MASTER, &[SECRET]].concat()).unwrap().unwrap();
        assert_eq!((found.rank, found.world, found.port), (1, 2, 29500));
        assert_eq!(found.host, StoreHost::RankZero);
    }

    #[test]
    fn one_process_needs_no_environment() {
        assert_eq!(launch(&[]), Ok(None));
        assert_eq!(launch(&MASTER), Ok(None));
        assert_eq!(launch(&[("SLURM_NTASKS", "8")]), Ok(None), "a shell of an allocation");
        assert_eq!(launch(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]), Ok(None));
    }

    #[test]
    fn a_store_that_others_reach_needs_a_token() {
        let ranks = [("RANK", "0"), ("WORLD_SIZE", "2")];
        let far = [&ranks[..], &MASTER].concat();
        let said = launch(&far).unwrap_err();
        assert!(said.to_string().contains("node-7:29500") && said.hint().contains("secret"));
        let found = launch(&[&far[..], &[SECRET]].concat()).unwrap().unwrap();
        assert_eq!(found.token, Token::chosen(SECRET.1));
        let said = launch(&[&far[..], &[(TOKEN, "secret")]].concat()).unwrap_err().to_string();
        assert!(said.contains("16 characters") && !said.contains("secret"), "{said}");
        let near = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
        assert!(launch(&[&ranks[..], &near].concat()).unwrap().unwrap().token.is_none());
    }

    #[test]
    fn half_an_environment_is_refused_by_name() {
        for (variables, expected) in [
            (vec![("RANK", "0")], "RANK is set, but WORLD_SIZE is not"),
            (vec![("RANK", "0"), ("WORLD_SIZE", "2")], "RANK is set, but MASTER_ADDR is not"),
            (vec![("RANK", "x"), ("WORLD_SIZE", "2"), MASTER[0], MASTER[1]], "RANK is `x`"),
            (vec![("RANK", "2"), ("WORLD_SIZE", "2"), MASTER[0], MASTER[1]], "RANK is `2`: ranks"),
            (
                vec![("RANK", "1"), ("WORLD_SIZE", "2"), MASTER[0], ("MASTER_PORT", "0")],
                "MASTER_PORT is `0`",
            ),
        ] {
            let said = launch(&variables).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }
}
