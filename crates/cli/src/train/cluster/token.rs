//! What the processes of a run know and nobody else: the session's token.
//!
//! It signs everything that goes through Redis and opens the trainer's door for weights. It comes from
//! the variable SCALERL_TOKEN; where that is not set the trainer draws one, hands it to the generators
//! that it starts, and leaves it in the run folder for those that others start: readable by its owner
//! alone, gone when the run has ended in order. A run that was killed and is resumed goes on with it, so
//! that generators which wait for their trainer know it again.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use scalerl_torch::collective::Token;
use scalerl_worker::ranks::TOKEN;

use crate::failure::BadInput;

/// In the run folder.
const FILE: &str = "session.token";

/// Where a generator has the token from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    Known(Token),
    /// The trainer may not have written it yet.
    File(PathBuf),
}

impl TokenSource {
    /// For a generator: the file that is named, the variable, or the file in the run's folder.
    pub(crate) fn find(named: Option<&Path>, run: Option<&Path>) -> Result<Self> {
        if let Some(path) = named {
            return Ok(Self::File(path.to_owned()));
        }
        if let Some(token) = of_environment()? {
            return Ok(Self::Known(token));
        }
        let run = run.ok_or_else(|| {
            BadInput::new("the token of the run is not known").hint(format!(
                "set {TOKEN} to the trainer's, or give --token-file RUN/{FILE}; a launcher's \
                 processes find it with --run FOLDER"
            ))
        })?;
        Ok(Self::File(run.join(FILE)))
    }

    /// The token; `None` while its file is not there. Whoever has served a session knows that one's
    /// without a file: a run that ends in order removes it, and says so under that token.
    pub(crate) fn read(&self, last: Option<&Token>) -> Result<Option<Token>> {
        match self {
            Self::Known(token) => Ok(Some(token.clone())),
            Self::File(path) => Ok(read(path)?.or_else(|| last.cloned())),
        }
    }

    /// What is waited for, for a line.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Known(_) => TOKEN.to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

/// The trainer's own, and the file that it is left in.
#[derive(Debug)]
pub(crate) struct OwnToken {
    pub(crate) token: Token,
    file: Option<PathBuf>,
}

impl OwnToken {
    /// From the variable, from what a killed process of this run has left, or a new one.
    pub(crate) fn of(run: &Path) -> Result<Self> {
        let path = run.join(FILE);
        if let Some(token) = of_environment()? {
            // Left by an earlier process that had none given: it opens nothing any more.
            let _ = fs::remove_file(&path);
            return Ok(Self { token, file: None });
        }
        let token = match read(&path)? {
            Some(token) => token,
            None => Token::random().context("no random numbers")?,
        };
        let written = write(&path, &token);
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { token, file: Some(path) })
    }

    /// How another generator joins, for a person.
    pub(crate) fn way_in(&self, name: &str) -> String {
        match &self.file {
            Some(file) => {
                let file = file.display();
                format!("generators join with: scalerl generator --name {name} --token-file {file}")
            }
            None => {
                format!("generators join with: scalerl generator --name {name} (and {TOKEN})")
            }
        }
    }

    /// The run has ended in order: nobody needs it any more.
    pub(crate) fn forget(&self) {
        if let Some(file) = &self.file {
            // It opens nothing any more.
            let _ = fs::remove_file(file);
        }
    }
}

fn of_environment() -> Result<Option<Token>> {
    let Some(text) = std::env::var(TOKEN).ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    Ok(Some(chosen(&text, TOKEN)?))
}

fn chosen(text: &str, place: &str) -> Result<Token, BadInput> {
    Token::chosen(text).ok_or_else(|| {
        BadInput::new(format!("{place}: a token has 16 characters or more"))
            .hint("for example what `openssl rand -hex 16` prints")
    })
}

fn read(path: &Path) -> Result<Option<Token>> {
    match scalerl_files::read_to_string(path, scalerl_files::DOCUMENT) {
        Ok(text) => Ok(Some(chosen(text.trim(), &path.display().to_string())?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Whole or not at all, and for its owner alone from the first byte on.
fn write(path: &Path, token: &Token) -> std::io::Result<()> {
    let draft = path.with_extension("token.part");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{}", token.secret())?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_left_for_its_owner_alone_kept_after_a_kill_and_forgotten_at_the_end() {
        let run = tempfile::tempdir().unwrap();
        let source = TokenSource::File(run.path().join(FILE));
        assert_eq!(source.read(None).unwrap(), None, "not there yet");
        let own = OwnToken::of(run.path()).unwrap();
        let path = run.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(source.read(None).unwrap(), Some(own.token.clone()));
        let again = OwnToken::of(run.path()).unwrap();
        assert_eq!(again.token, own.token, "generators that wait know their trainer again");
        assert!(
            own.way_in("x").contains("--token-file")
                && !own.way_in("x").contains(own.token.secret())
        );
        own.forget();
        assert_eq!(source.read(None).unwrap(), None);
        // Who has served can still read, under that token, that the run is over.
        assert_eq!(source.read(Some(&own.token)).unwrap(), Some(own.token.clone()));
        let next = OwnToken::of(run.path()).unwrap();
        assert_eq!(source.read(Some(&own.token)).unwrap(), Some(next.token), "another session");
        fs::write(&path, "short").unwrap();
        assert!(source.read(None).unwrap_err().to_string().contains("16 characters"));
    }
}
