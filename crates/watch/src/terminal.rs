//! The same in a terminal, for people on ssh: a list of runs, and one run on the whole screen.
//!
//! [`Screen`] says what stands where and what a key does; [`show`] has the terminal. Reading happens
//! between two frames, so a frame is never torn, and each wait for a key ends within a second.

mod frame;

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::termios::{
    OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};
use thiserror::Error;

use crate::digest::Digest;
use crate::follow::Follower;
use crate::glance::Glance;
use crate::room::{Room, read};

/// Bytes of a journal between two frames.
const BUDGET: u64 = 64 << 20;
/// Tenths of a second that a frame stands without a key.
const FRAME: u8 = 10;

/// Why there is no full-screen view.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TerminalError {
    /// Standard input or output is a file or a pipe.
    #[error("the full-screen view needs a terminal")]
    NoTerminal,
    /// It cannot be spoken to.
    #[error("the terminal: {0}")]
    Io(#[from] io::Error),
}

/// What somebody has pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Towards the top.
    Up,
    /// Towards the bottom.
    Down,
    /// Into the run.
    Enter,
    /// Back to the list.
    Back,
    /// Out.
    Quit,
}

/// What is on the screen.
#[derive(Default)]
pub struct Screen {
    runs: Vec<(String, Arc<Glance>)>,
    chosen: usize,
    /// The run that is open.
    open: Option<String>,
    digest: Option<Arc<Digest>>,
    progress: f64,
}

impl Screen {
    /// What is listed from now on.
    pub fn list(&mut self, runs: Vec<(String, Arc<Glance>)>) {
        self.runs = runs;
        self.chosen = self.chosen.min(self.runs.len().saturating_sub(1));
    }

    /// What is known of the run that is open.
    pub fn tell(&mut self, digest: Option<Arc<Digest>>, progress: f64) {
        (self.digest, self.progress) = (digest, progress);
    }

    /// The run that is open.
    pub fn open(&self) -> Option<&str> {
        self.open.as_deref()
    }

    /// Does what a key means; false ends the view.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Up => self.chosen = self.chosen.saturating_sub(1),
            Key::Down => self.chosen = (self.chosen + 1).min(self.runs.len().saturating_sub(1)),
            Key::Enter => {
                self.open = self.runs.get(self.chosen).map(|(slug, _)| slug.clone());
                self.digest = None;
            }
            Key::Back if self.open.is_some() => self.open = None,
            Key::Back | Key::Quit => return false,
        }
        true
    }

    /// The lines of the screen: `height` of them at most, none wider than `width`.
    pub fn frame(&self, width: usize, height: usize) -> Vec<String> {
        match &self.open {
            Some(slug) => {
                let glance = self.runs.iter().find(|(one, _)| one == slug).map(|(_, one)| one);
                frame::run(slug, glance, self.digest.as_deref(), self.progress, (width, height))
            }
            None => frame::list(&self.runs, self.chosen, (width, height)),
        }
    }
}

/// The terminal as it was, and back to it whatever happens.
struct Raw {
    before: Termios,
}

impl Raw {
    fn enter() -> io::Result<Self> {
        let input = io::stdin();
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.make_raw();
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = FRAME;
        tcsetattr(&input, OptionalActions::Now, &raw)?;
        // The other screen, without its cursor.
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(Self { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Shows runs on the whole terminal until `q` is pressed.
pub fn show(folders: &[PathBuf]) -> Result<(), TerminalError> {
    if !isatty(io::stdin()) || !isatty(io::stdout()) {
        return Err(TerminalError::NoTerminal);
    }
    let room = Room::new(folders);
    let mut screen = Screen::default();
    if let [only] = &room.runs().keys().collect::<Vec<_>>()[..] {
        screen.open = Some((*only).clone());
    }
    let mut follower: Option<(String, Follower)> = None;
    let _raw = Raw::enter()?;
    loop {
        room.look_again();
        let listed = room.runs();
        let known = listed.values().filter_map(|run| Some((run.slug.clone(), read(&run.glance)?)));
        screen.list(known.collect());
        follow(&room, &mut screen, &mut follower)?;
        let size = tcgetwinsize(io::stdout()).map_err(io::Error::from)?;
        draw(&screen.frame(usize::from(size.ws_col), usize::from(size.ws_row)))?;
        if let Some(key) = pressed()?
            && !screen.press(key)
        {
            return Ok(());
        }
    }
}

fn follow(
    room: &Room,
    screen: &mut Screen,
    follower: &mut Option<(String, Follower)>,
) -> io::Result<()> {
    let Some(slug) = screen.open().map(str::to_owned) else {
        *follower = None;
        return Ok(());
    };
    if follower.as_ref().is_none_or(|(followed, _)| *followed != slug) {
        let folder = room.run(&slug).and_then(|run| run.folder());
        *follower = folder.map(|folder| (slug, Follower::new(&folder)));
    }
    if let Some((_, follower)) = follower {
        // Looking for resumes and reading the rest are two steps.
        let _ = follower.advance(BUDGET)? || follower.advance(BUDGET)?;
        screen.tell(follower.digest(), follower.progress());
    }
    Ok(())
}

fn draw(lines: &[String]) -> io::Result<()> {
    let mut out = String::from("\x1b[H");
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            out.push_str("\r\n");
        }
        out.push_str(line);
        out.push_str("\x1b[K");
    }
    out.push_str("\x1b[J");
    let mut terminal = io::stdout().lock();
    terminal.write_all(out.as_bytes())?;
    terminal.flush()
}

/// A key, or `None` after a second without one.
fn pressed() -> io::Result<Option<Key>> {
    let mut bytes = [0; 8];
    let count = match io::stdin().lock().read(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        read => read?,
    };
    Ok(match &bytes[..count] {
        b"q" | b"\x03" => Some(Key::Quit),
        b"j" | b"\x1b[B" | b"\x1bOB" => Some(Key::Down),
        b"k" | b"\x1b[A" | b"\x1bOA" => Some(Key::Up),
        b"\r" | b"\n" | b"l" | b"\x1b[C" | b"\x1bOC" => Some(Key::Enter),
        b"\x1b" | b"h" | b"b" | b"\x7f" | b"\x1b[D" | b"\x1bOD" => Some(Key::Back),
        _ => None,
    })
}
